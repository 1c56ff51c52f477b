// Command gpuplugin is a kubelet device plugin that offers GPUs which do not exist, so that limits on
// nvidia.com/gpu are scheduled, counted and handed out on a machine without one.
//
// A patch of the node's status would do until the kubelet restarts, which sets every extended
// resource without a plugin back to zero.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "nvidia.com/gpu"
	endpoint = "specdec-gpu.sock"
)

// plugin answers the kubelet: a fixed list of healthy devices, and their names in the environment.
type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		visible := strings.Join(container.DevicesIds, ",")
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible},
		})
	}
	return response, nil
}

// serve answers on a fresh socket until the kubelet has gone, which removes the socket, or ctx ends.
func (p *plugin) serve(ctx context.Context, dir string) error {
	socket := filepath.Join(dir, endpoint)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(ctx, dir); err != nil {
		return err
	}
	log.Printf("offering %d of %s", len(p.devices), resource)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
			if _, err := os.Stat(socket); err != nil {
				return fmt.Errorf("the kubelet restarted: %w", err)
			}
		}
	}
}

func register(ctx context.Context, dir string) error {
	kubelet := "unix://" + filepath.Join(dir, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func main() {
	count := flag.Int("count", 8, "GPUs to offer")
	dir := flag.String("dir", api.DevicePluginPath, "the kubelet's device plugin folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &plugin{}
	for i := range *count {
		p.devices = append(p.devices, &api.Device{ID: fmt.Sprintf("GPU-%d", i), Health: api.Healthy})
	}
	for ctx.Err() == nil {
		if err := p.serve(ctx, *dir); err != nil {
			log.Printf("waiting for the kubelet: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}
