"""Forms in which logs quote credentials; none of them may stay in what a command writes."""

import time

import pytest

from specdec.tools.inspect.redaction import Redactor

# The secret is the part between the bars, which no text keeps.
PLANTED = {
    "signs": "connect failed: password=|p@ss!w0rd#1$%|",
    "short": "password=|ab1|",
    "comma-and-semicolon": "PGPASSWORD=|a,b;c&d| psql",
    "quoted-with-blanks": 'password="|correct horse battery|" user=x',
    "quoted-with-a-quote": r'{"password": "|a\"b-c|", "user": "x"}',
    "single-quotes": "{'api_key': '|k-1 2|', 'user': 'x'}",
    "json-in-json": r'"{\"client_secret\": \"|s3cr3t.value|\", \"a\": 1}"',
    "camel-case": '{"accessToken":"|ya1-x|","expires":3}',
    "yaml": "db_password: |hunter2|",
    "yaml-block": "config:\n  password: >-\n    |correct horse|\n  user: x",
    "xml": "<proxy><password>|hunter2|</password></proxy>",
    "encoded-assignment": "q=api_key%3D|abc|",
    "user-info-without-a-scheme": "connected to guest:|guest-1|@rabbit:5672",
    "ini-with-blanks": "secret_key = |wJalr/XUtn+FEMI=|",
    "arrow": "'private_key' => '|abc|',",
    "numbered": "TOKEN2=|a1b2c3|",
    "option": "serve --token |abc123| --port 8000",
    "option-of-a-password": "serve --password=|X|",
    "option-with-quotes": "run --api-key '|a b c|' --verbose",
    "option-in-a-list": '["serve", "--hf-token", "|short|", "--port"]',
    "option-of-curl": "curl -u user:|pa55!| https://example.com",
    "cookie": "Cookie: |session=abc; csrf=def|",
    "set-cookie": "< Set-Cookie: |sid=s%3Aabc.def; Path=/; HttpOnly|",
    "cookie-in-json": '{"cookie": "|a=b; c=d|", "host": "x"}',
    "header-in-python": "[('authorization', '|Basic dXNlcjpw|'), ('host', 'x')]",
    "header-in-bytes": "(b'x-api-key', b'|abc|')",
    "header-of-a-key": "X-Api-Key: |7d|",
    "digest": 'Authorization: Digest |username="u", realm="r", response="0123abcd"|',
    "aws-signature": "Authorization: |AWS4-HMAC-SHA256 Credential=AKIAX/2/s3, Signature=0f|",
    "basic": "sent Basic |dXNlcjpwYXNz| to the registry",
    "docker-auth": '{"auths": {"nvcr.io": {"auth": "|JG9hdXRo|"}}}',
    "docker-config": ".dockerconfigjson: |eyJhdXRocyI6eyJudmNyLmlvIjp7fX19|",
    "npmrc": "//registry.npmjs.org/:_authToken=|00000000-1111|",
    "netrc": "machine example.com login me password |pw|",
    "environment-in-json": '{"name":"NGC_API_KEY","value":"|abc def|"}',
    "url-with-a-token": "https://|0123abcd|@github.com/x/y",
    "url-with-a-slash": "redis://:|pa/ss|@cache:6379/0",
    "url-with-an-at": "postgres://me:|p@ss|@db:5432/x",
    "url-with-digits": "http://me:|12345|@proxy:3128",
    "url-query": "GET /v1?access_token=|a.b|&n=1",
    "url-of-a-signature": "https://a.blob.core.windows.net/x?sv=1&sig=|a%2Fb|&se=2",
    "slack-hook": "https://hooks.slack.com/services/|T0/B0/abc|",
    "telegram": "https://api.telegram.org/bot|123456789:AAabc|/getMe",
    "kubeconfig": "client-key-data: |LS0tLS1CRUdJTiBSU0E=|",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n|lQOY|\n-----END PGP PRIVATE KEY BLOCK-----",
    "anthropic": "sk-ant-|api03-abcdefgh|",
    "openai-project": "sk-proj-|abcdefgh_1-2|",
    "google": "AIza|SyA1234567890abcdefghijklmnopqrstuv|",
    "google-oauth": "ya29.|a0AfH6SMBabcdef|",
    "gitlab": "glrt-|abcdefghijklmnopqrst|",
    "github-server": "ghs_|16C7e42F292c6912E7710c838347Ae178B4a|",
    "slack-app": "xapp-|1-A0123-4567-abcdef|",
    "docker-hub": "dckr_pat_|abcdefghijklmnop|",
    "npm": "npm_|abcdefghijklmnopqrstuvwxyz0123456789|",
    "pypi": "pypi-|AgEIcHlwaS5vcmcabcdef|",
    "vault": "hvs.|CAESIabcdefghijklmnop|",
    "groq": "gsk_|abcdefghijklmnop|",
    "replicate": "r8_|abcdefghijklmnop|",
    "stripe": "sk_live_|4eC39HqLyjWDarjtT1zdp7dc|",
    "aws-temporary": "ASIA|IOSFODNN7EXAMPLE|",
    "login-of-a-registry": '{"nvcr.io": {"username": "$oauthtoken", "password": "|a1B2c3|"}}',
    "login-in-python": "{'username': '$oauthtoken', 'password': '|a1B2c3|'}",
    "login-in-escaped-json": r"{\"username\":\"$oauthtoken\",\"password\":\"|a1B2c3|\"}",
    "cookies-in-python": "cookies={'|session': 'x93x98', 'csrf': 'def1|'}",
    "cookie-of-gitlab": "_gitlab_session=|c45622902e30886638c8803cb5fa6f75|",
    "yaml-with-blanks": "config:\n  passphrase: |horse battery staple|\n  user: x",
    "prose": "the password is |03x8ZlPnW| for now",
    "prose-of-a-key": "tried the api key |Z71KS2wgSBB5mBvrlybVd3y7CLEgj0Kx6Uq5ID8k|",
    "azure-gateway": "Ocp-Apim-Subscription-Key: |5974375cc3d0|",
    "redis": "redis-cli -h cache -a |jg9ZoM6pN| ping",
    "hub-cut": "hf_|aBcDeFgHiJ|",
    "secret-of-a-client": "clientSecret: |hunter|",
    "mysql": "mysql -u x -p|kVB55nzqL| db",
    "jwt-in-base64": "token review of |ZXlKaGJHY2lPaUpTVXpJMU5pSXNJbXRwWkNJNklqRWlmUS5leUp|",
    "ngc-legacy": "login to nvcr.io with |bW1vNmRlM2xkb3ZhbmtlajI4bDVqZmdqOTM6NGE5ZGRkNTgtMDAxMS00"
    "MjMzLWFhNTUtZjY2Nzc4ODk5YWFi|",
    "pass": "DB_PASS=|hunter2|",
    "pass-in-yaml": "redis_pass: |hunter2|",
    "pass-in-camel-case": "{'smtpPass': '|hunter2|'}",
    "pass-as-an-option": "serve --pass |hunter2| --port 1",
    "pass-in-a-query": "user=me&pass=|hunter2|&x=1",
    "pw": "ldap_bind_pw=|hunter2|",
    "creds": "creds=|me:hunter2|",
    "access-token-of-a-forge": "GH_PAT=|hunter2x|",
    "auth": "AUTH=|hunter2x|",
    "short-variable": "TOKEN=|abc| serve",
    "quoted-variable": "TOKEN='|a b|' serve",
    "ssh": "ssh_key: |abc/def|",
    "login": "docker login -u me -p |hunter2| nvcr.io",
    "literal": "kubectl create secret generic x --from-literal=key=|hunter2|",
    "google-interoperability": "GOOG1E|N5HVA3NKFP7GHUSJELBLNQCUVXKKNDDKDQ5GMIZ4858UX1ZCCLJW|",
    "terraform": "|TiJLYbS66Kqt7w.atlasv1.|LcaiUMd5rwK1Qi9f0vl6JdgdTMBNPReMFz",
}
# The beginnings of keys that gitleaks has rules for, and those of further inference services.
PREFIXES = [
    *("hf_", "api_org_", "nvapi-", "r8_", "gsk_", "xai-", "pplx-", "tgp_v1_", "csk-", "fw_"),
    *("jina_", "pcsk_", "lsv2_pt_", "wandb_v1_", "rpa_", "sk-", "sk-proj-", "sk-svcacct-"),
    *("sk-ant-api03-", "sk-ant-oat01-", "sk-or-v1-", "sk-lf-", "ABSK", "bedrock-api-key-"),
    *("AIza", "ya29.", "GOCSPX-", "LTAI", "AQVN", "doo_v1_", "dop_v1_", "dor_v1_", "dapi0"),
    *("pul-", "HRKU-AA", "fo1_", "fm1a_", "fm2_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("github_pat_", "glpat-", "gldt-", "glrt-t1_", "glptt-", "glft-", "glsoat-", "glcbt-64_"),
    *("glagent-", "gloas-", "glimt-", "glffct-", "glsa_", "glc_", "GR1348941", "xoxb-1-"),
    *("xoxp-1-", "xoxe-1-", "xoxe.xoxp-1-", "xoxc-", "xapp-1-", "npm_", "pypi-", "rubygems_"),
    *("CLOJARS_", "dckr_pat_", "dckr_oat_", "sha256~", "hvs.", "hvb.", "s.", "dp.pt.", "ops_eyJ"),
    *("A3-ABC123-", "AGE-SECRET-KEY-1", "pnu_", "ntn_", "lin_api_", "PMAK-", "NRAK-", "NRII-"),
    *("NRJS-", "dt0c01.", "sntrys_", "sntryu_", "sgp_", "squ_", "sqp_", "pscale_tkn_"),
    *("pscale_pw_", "pscale_oauth_", "tfp_", "xkeysib-", "SG.", "rdme_", "figd_", "shippo_live_"),
    *("shpat_", "shpca_", "shppa_", "shpss_", "sk_live_", "rk_test_", "sq0atp-", "sm_aat_"),
    *("sm_pat_", "sm_sat_", "tk-us-", "API-", "ico-", "EZAK", "EZTK", "FLWSECK_TEST-"),
    *("access-production-", "dnkey-", "duffel_live_", "fio-u-", "p8e-", "s-s4t2ud-", "SK"),
    *("4b1d", "EAAM", "AKCp", "cmVmd", "AKIA", "ASIA", "A3TX", "ABIA", "ACCA"),
]
ORDINARY = [
    "max_tokens=64 output_tokens: 12345678 tokens=[1, 2, 3]",
    "next token: the, eos_token=</s>, pad_token: <pad>, stop_token=stop",
    "token: 151645",
    '{"bos_token": "<s>", "unk_token": "unknown", "add_bos_token": true}',
    "Secret hugging-face with the key token is missing: create it",
    "ssh://git@github.com/x/y and docker://image@sha256:0123",
    "GET http://server:8000/v2/models?max_tokens=5&key_count=2",
    "reference:1.2@sha256:0123 and mailto:me@example.com and a:b c@d 12:30",
    "http://host:8080/a@b and https://example.com/@scope/package",
    "authors: basic understanding; bearer of news",
    "cache_key=abc primary_key=id keyboard=us",
    "password: null, secret=None",
    "the basic authentication failed",
    'specdec_generated_tokens{model="x"} 12',
    "progress phase=build percent=40 engine-0123456789abcdef-012345",
    "progress phase=digest percent=0 draft",
    "the pod waits for a Secret: create it; hf_model_path and hf_quant_config.json",
    "--max-tokens 8 --tokenizer /models/x --verbose",
    "TRITON_AUTHOR=x task-runner risk-free disk-pressure-eviction",
    "the password is wrong; an api key is required; a token is missing; per token 12.3ms",
    "redis-cli -p 6379 and mysql -p -u x and rpa_worker_of_a_longer_name fw_update_of_the_card",
    "tests pass: 3 of 3; first_pass: 12 ms; bypass=1 path=/x EOS_TOKEN=</s> MAX_TOKEN=8 TOKENS=5",
    "patience: 60 and pattern=abc; credit: yes; author=me; passthrough=on; login succeeded",
    "results.abcdefghijklmnopqrstuvwxyz SKIPPED API-server EAAMerge image@sha256:0123",
]


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_planted_secret_is_removed(text: str) -> None:
    before, secret, after = text.split("|")
    cleaned = Redactor().text(f"a line\n{before}{secret}{after}\nanother line")
    assert secret not in cleaned
    assert not [part for part in secret.split() if len(part) > 3 and part in cleaned]
    assert "[removed]" in cleaned
    assert cleaned.startswith("a line\n")
    assert cleaned.endswith("\nanother line")
    assert Redactor().text(cleaned) == cleaned


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("around", ["{}", '{{"x":"{}"}}', "x={},", "failed:\\n{}\\nnext"])
def test_key_with_a_known_prefix_is_removed_to_its_end(prefix: str, around: str) -> None:
    value = "0123456789ABCDEF" * 3 if prefix.isupper() else "0a1b2c3d4e5f6789" * 3
    cleaned = Redactor().text(around.format(f"{prefix}{value}"))
    assert cleaned == around.format("[removed]")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_kept(text: str) -> None:
    assert Redactor().text(text) == text


def test_a_known_secret_is_removed_in_other_encodings() -> None:
    redactor = Redactor(['pa ss/w"ord'])
    for form in ('pa ss/w\\"ord', "pa%20ss%2Fw%22ord", "cGEgc3MvdyJvcmQ="):
        assert form not in redactor.text(f"x {form} y")


@pytest.mark.parametrize(
    "unit", ["a", "token", "\\", "--token", "password=", "://a:", "'\"", "eyJ"]
)
def test_time_is_linear_in_the_length(unit: str) -> None:
    """A log may hold anything; ten times the text takes less than forty times as long."""
    redactor = Redactor()

    def seconds(count: int) -> float:
        started = time.process_time()
        redactor.text(unit * count)
        return time.process_time() - started

    short = min(seconds(4_000) for _ in range(3))
    assert seconds(40_000) < 40 * max(short, 0.005)
