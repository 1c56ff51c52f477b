// Command keys writes the keys and certificates of one local cluster into a folder: a certificate
// authority, the API server's certificate for the given addresses, the certificate with which the
// API server speaks to the kubelet, and the pair that signs service account tokens.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Longer than any local cluster lives.
const life = 5 * 365 * 24 * time.Hour

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", ".", "where the files go")
	hosts := flag.String("hosts", "127.0.0.1,localhost", "addresses and names of the API server")
	flag.Parse()
	if err := write(*dir, strings.Split(*hosts, ",")); err != nil {
		log.Fatalf("The cluster's keys cannot be written to %s: %v.", *dir, err)
	}
}

func write(dir string, hosts []string) error {
	ca, err := newAuthority(dir)
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, host)
		}
	}
	if err := ca.issue(dir, "apiserver", server); err != nil {
		return err
	}
	client := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := ca.issue(dir, "kubelet-client", client); err != nil {
		return err
	}
	return serviceAccountPair(dir)
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "specdec local cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{certificate, key}, save(dir, "ca.crt", "CERTIFICATE", der, 0o644)
}

// issue signs template for a new key and writes NAME.crt and NAME.key.
func (a *authority) issue(dir, name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := save(dir, name+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return savePrivate(dir, name+".key", key)
}

func serviceAccountPair(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := savePrivate(dir, "service-accounts.key", key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return save(dir, "service-accounts.pub", "PUBLIC KEY", der, 0o644)
}

func savePrivate(dir, name string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return save(dir, name, "PRIVATE KEY", der, 0o600)
}

func save(dir, name, kind string, der []byte, mode os.FileMode) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(dir, name), text, mode)
}
