"""The forms of credentials in a text, and their removal.

This is best effort: a secret in another form stays. The prefixes are those of the rules of
gitleaks (November 2026), and of further inference services. Its rules find only complete keys in
source files; these here remove cut ones too, and a value to its end.
"""

import re
from collections.abc import Callable

REMOVED = "[removed]"

# The letter of an escape such as \n may stand before a key in a log of JSON.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
# Keys with a fixed beginning: models and inference, repositories of code and packages, clouds and
# secrets, operation and data, chats and payments.
_PREFIX = r"""
    hf_oauth_ | api_org_ | nvapi- | ngc_ | r8_ | gsk_ | xai- | pplx- | tgp_v1_ | csk- | jina_
    | pcsk_ | lsv2_ | wandb_v1_ | bedrock-api-key-
    | gh[pousr]_ | github_pat_ | gl(?:pat|dt|rt|rtr|ptt|ft|soat|cbt|agent|oas|imt|ffct|sa|c)[-_]
    | GR1348941 | npm_ | pypi- | rubygems_ | crates_io_ | CLOJARS_ | dckr_(?:pat|oat)_ | sgp_
    | sq[upa]_ | sha256~ | hv[sbr][.] | ya29[.] | GOCSPX- | 1//0 | AT[AC]TT3 | dapi[0-9a-f]
    | do[opr]_v1_ | pul- | fo1_ | fm[12][ar]?_ | ops_eyJ | AGE-SECRET-KEY-1 | A3-[A-Z0-9]{6}-
    | dp[.][a-z]{2}[.] | HRKU- | tk-us- | tskey- | dnkey- | pnu_
    | NR(?:AK|II|JS)- | dt0c01[.] | sntry[su]_ | sbp_ | pscale_(?:tkn|pw|oauth)_ | lin_api_ | PMAK-
    | ntn_ | figd_ | CFPAT- | rdme_ | fio-u- | p8e- | tfp_ | s-s4t2(?:ud|af)- | sm_[aps]at_
    | xox[a-z][.-] | xapp- | xwfp- | SG[.] | xkeysib- | (?:sk|rk|pk)_(?:live|test|prod)_ | whsec_
    | shp(?:at|ca|pa|ss)_ | shippo_(?:live|test)_ | sq0[a-z]{3}- | duffel_(?:test|live)_
    | FLW(?:SEC|PUB)K_ | access-(?:sandbox|development|production)-
"""
_KNOWN = re.compile(rf"{_START}(?:{_PREFIX})[A-Za-z0-9_.+/=~-]{{8,}}", re.VERBOSE)
# These could also begin a word.
_LONG = re.compile(
    rf"{_START}(?:AIza|LTAI|AKCp|cmVmd|AQVN|ABSK|GOOG1|ZXlK)[A-Za-z0-9_+/=-]{{20,}}"
    rf"|{_START}(?:fw_|rpa_|ico-|API-|EZ[AT]K|EAA[A-Z]|SK|4b1d|s[.])"
    r"(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}"
)
_ATLAS = re.compile(rf"{_START}[A-Za-z0-9]{{14}}[.]atlasv1[.][A-Za-z0-9_=-]{{8,}}")
# A legacy key of NGC: base64 of 26 characters, a colon and a UUID.
_NGC = re.compile(
    rf"{_START}[A-Za-z0-9]{{35}}6[A-Za-z0-9]{{11}}t[A-Za-z0-9]{{19}}t[A-Za-z0-9]{{16}}(?!\w)"
)
_SK = re.compile(rf"{_START}sk-[A-Za-z0-9_-]{{8,}}")
_HUB = re.compile(
    r"(?:ghp_|gho_|nvapi-|glpat-|github_pat_)[A-Za-z0-9_-]{8,}"
    # Not a name such as hf_quant_config.
    r"|hf_(?:[A-Za-z0-9]{20,}|(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,})"
)
_AWS = re.compile(r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}")
_AZURE = re.compile(r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,}")
# JSON in base64: a token, or the logins of a registry.
_JSON = re.compile(r"eyJ[A-Za-z0-9_+/=-]{8,}(?:\.[A-Za-z0-9_=-]*){0,4}")
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)(?!\[removed\])"
    r".*?(?:-----END [A-Z ]*-----|\Z)",
    re.DOTALL,
)
_PEM_BASE64 = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+")
_HOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
    r"|api\.telegram\.org/bot|\.webhook\.office\.com/)[^\s\"'<>]+"
)
_BOT = re.compile(r"(?<![0-9A-Za-z])\d{8,10}:AA[A-Za-z0-9_-]{30,}")
# A password may contain / and @. A number after the colon and before a path is a port.
_USER = re.compile(
    r"(://)[^\s/@:\"'?#]*:(?!\d+(?:[/?#\s\"',;)]|$))"
    r"(?:[^\s\"'/]{0,512}|[^\s\"'@]{0,512})(?=@)"
)
_TOKEN_USER = re.compile(r"(://)(?!git@)[^\s/@:\"'?#]{1,2048}(?=@(?!sha256:))")
_QUERY = re.compile(
    r"(?i)([?&;](?:x-amz-[a-z-]*|x-goog-[a-z-]*|sig|key|code|awsaccesskeyid|state|"
    r"[a-z0-9_.-]{0,40}(?:token|secret|passw(?:or)?d|pwd|signature|credentials?|auth|"
    r"api_?key|access_?key))=)[^&\s\"'#]+"
)
_CURL = re.compile(r"((?:\s|^|\")(?:-u|--user|--proxy-user)[\s=\"',]+[^\s:\"']+:)[^\s\"']+")
# Options of clients; mysql asks for the password if a blank follows -p.
_CLIENT = re.compile(
    r"((?:\bredis-cli\b[^\n|;]{0,200}?\s-a[ \t=]?|\bsshpass\s-p[ \t]?"
    r"|\b(?:mysql\w{0,8}|mariadb)\b[^\n|;]{0,200}?\s-p|\slogin\b[^\n|;]{0,200}?\s-p[ \t=]"
    r"|--from-literal[= \t][\w.-]{1,253}=))(?!-)[^\s\"']+"
)
_COOKIES = re.compile(r"(?i)(\bcookies\\{0,4}[\"']?\s{0,4}[:=]\s{0,4})\{[^{}\n]*\}")
# Not the tag and digest of an image.
_BARE_USER = re.compile(
    r"((?<![\w./@:-])(?!mailto:)[\w.+-]{1,64}:)[^\s\"'/@:]{1,128}(?=@(?!sha\d+:)[\w.-]+)"
)
_NETRC = re.compile(r"(\blogin\s+\S+\s+password\s+)\S+")
_SCHEME = re.compile(
    r"(?i)((?:bearer|(?<![a-z])(?:basic|negotiate))(?:\s+|%20|\+))"
    r"([A-Za-z0-9+/=_.~-]{8,})"
)
_SIGNED = re.compile(r"(?i)(?<![=\w])((?:digest|aws4-hmac-sha256|hmac-sha256|oauth)\s+\w+=).*")
# An end of a quoted text, as opposed to a quote inside a value.
_CLOSED = r"[\"'](?=[\s,}\]):;]|$)"
_HEADER = re.compile(
    r"(?i)((?:authorization|(?:set-)?cookie2?)\\{0,4}[\"']?\s{0,4}(?:[:=]|,(?=\s*b?[\"']))\s{0,4}"
    rf"b?\\{{0,4}}[\"']?)((?:(?!\\{{0,4}}{_CLOSED})[^\r\n])+)"
)
_ENTRY = re.compile(
    r"(?i)([\"']name[\"']\s*:\s*[\"'][\w.-]{0,80}?(?:token|secret|passw|credential|key|auth)"
    r"[\w.-]{0,40}[\"']\s*,\s*[\"']value[\"']\s*:\s*[\"'])(?:\\.|[^\"'\\])*"
)
_PATTERNS: tuple[re.Pattern[str], ...] = (
    *(_PEM, _PEM_BASE64, _HOOK, _SIGNED, _ENTRY, _CURL, _NETRC, _USER, _TOKEN_USER, _BARE_USER),
    *(
        _CLIENT,
        _COOKIES,
        _QUERY,
        _KNOWN,
        _LONG,
        _ATLAS,
        _NGC,
        _HUB,
        _SK,
        _AWS,
        _AZURE,
        _JSON,
        _BOT,
    ),
)

_STRONG = (
    r"passw(?:or)?d|passwd|pwd|passphrase|secret|credentials?|(?<![a-z])creds"
    r"|(?:api|access|account|private|secret|shared|signing|encryption|master|license|ssh"
    r"|subscription)[-_ ]?key"
    r"|key[-_]data"
    r"|(?:auth|access|refresh|bearer|session|id|identity|registry|security|api|personal|private|bot"
    r"|hub|hf|hugging[-_]?face|gitlab|github|service|deploy|job)[-_]?token"
)
_WEAK = (
    r"token|jwt|session_?id|gitlab_session|(?<=[\"'_])auth(?=[\"'\\=])|(?<=[_-])(?:pass|pat|pw)"
    r"|(?-i:(?<=[a-z])Pass|(?<![A-Z])AUTH(?==))|(?<=[?&])pass"
)
_NAME = rf"(?:{_STRONG}|token)\d{{0,3}}"
# A block of YAML, whose lines are indented more than its key, and the content of an XML element.
_BLOCK = re.compile(
    rf"(?im)^(([ \t]*)[\w.-]{{0,80}}?{_NAME}[\"']?[ \t]*:[ \t]*[|>][-+]?[ \t]*\r?\n)"
    r"(?:\2[ \t]+\S[^\n]*(?:\n|\Z))+"
)
# A value of YAML that has blanks, alone on its line.
_LINE = re.compile(
    r"(?im)^([ \t]*[\w.-]{0,80}?(?:passw(?:or)?d|passwd|pwd|passphrase)[ \t]*:[ \t]+)"
    r"(?!(?:none|null|nil|true|false)\b)[^\s\"'`|>&*#{\[][^\r\n]*"
)
# A word with a digit after a name, in prose. A key needs more characters than a name of an object.
_PROSE = re.compile(
    r"(?i)\b((?:(?:passw(?:or)?d|passphrase)(?=(?:\s+is)?\s+[^\s\"',;]{6})"
    r"|(?:(?:api|access|secret)[-_ ]?key|token)(?=(?:\s+is)?\s+[a-z0-9]{20}))(?:\s+is)?\s+)"
    r"(?=\S{0,200}\d)(?=\S{0,200}[a-z])[^\s\"',;]+"
)
_ELEMENT = re.compile(rf"(?i)(<[\w:.-]{{0,40}}?{_NAME}(?:\s[^<>]{{0,200}})?>)[^<\n]+(?=</)")
# Each name in the patterns of headers, options and assignments has one of these parts.
_NAMES = (
    *("pass", "pwd", "pw", "pat", "secret", "cred", "key", "token", "jwt", "session", "auth"),
    *("cookie", "bearer", "basic", "negotiate"),
)
_VALUE = (
    # A quoted value, with escaped quotes; the quotes may be escaped themselves.
    r"b?(?P<quote>\\{0,4}[\"'`])(?P<inner>(?:(?!(?P=quote))(?:\\.|[^\\\n]))*)"
    # Any other value, to a blank or the end of a quoted text around it.
    rf"|(?P<plain>(?:(?!\\{{0,4}}{_CLOSED})\S)+)"
)
_ASSIGNED = re.compile(
    rf"(?i)(?P<name>(?P<strong>{_STRONG})|{_WEAK})\d{{0,3}}"
    r"(?P<between>\\{0,4}[\"'\]]{0,2}\s{0,4}(?::=|=>|==?|:|%3[DdAa])\s{0,4}"
    # The next item of a list, unless it is a key itself.
    r"|\\{0,4}[\"']\s{0,4},\s{0,4}(?=b?\\{0,4}[\"'])"
    r"(?!b?\\{0,4}[\"'][\w.-]{0,80}\\{0,4}[\"']\s{0,4}:))"
    rf"(?:{_VALUE})"
)
_OPTION = re.compile(
    rf"(?i)(?P<name>(?<![\w-])--?[a-z0-9-]{{0,40}}?(?P<strong>{_STRONG}|token|auth|-pass)\d{{0,3}})"
    rf"(?P<between>[ \t]+)(?!-)(?:{_VALUE})"
)
# Tokens of a vocabulary, and other names that end like one of a credential.
_ORDINARY = re.compile(
    r"(?i)(?:bos|eos|pad|unk|cls|sep|mask|eot|eom|stop|start|end|image|audio|first|last|next|new"
    r"|draft|per|prompt|special|added|tool|think|max|min|num|input|output|decoder_start)[-_ ]?$"
)
_NO_VALUE = frozenset({"none", "null", "true", "false", "nil", "[removed]", "...", "***"})
_TRAILING = re.compile(r"[,;)}\]]+$")


def without_credentials(text: str) -> str:
    """The text without everything that has the form of a credential."""
    for pattern in _PATTERNS:
        text = pattern.sub(_kept_group, text)
    text = _BLOCK.sub(_block, text)
    text = _LINE.sub(_kept_group, text)
    text = _ELEMENT.sub(_kept_group, text)
    return "".join(_named_removed(line) for line in text.splitlines(keepends=True))


def _named_removed(line: str) -> str:
    """A line without the values that follow the name of a credential."""
    lowered = line.lower()
    if not any(name in lowered for name in _NAMES):
        return line
    line = _HEADER.sub(_header, line)
    line = _SCHEME.sub(_scheme, line)
    line = _OPTION.sub(_option, line)
    line = _PROSE.sub(_kept_group, line)
    return _ASSIGNED.sub(_assignment, line)


def _kept_group(match: re.Match[str]) -> str:
    """The first group names what was removed."""
    return f"{match.group(1) if match.re.groups else ''}{REMOVED}"


def _block(match: re.Match[str]) -> str:
    return f"{match.group(1)}{match.group(2)}  {REMOVED}\n"


def _header(match: re.Match[str]) -> str:
    return match.group(0) if match.group(2).startswith(REMOVED) else _kept_group(match)


def _scheme(match: re.Match[str]) -> str:
    """Remove what follows the name of a scheme, unless it is a word, as in `basic settings`."""
    value = match.group(2)
    odd = any(c.isdecimal() or c in "+/=" for c in value) or not value[1:].islower()
    return _kept_group(match) if odd or len(value) >= 16 else match.group(0)


def _option(match: re.Match[str]) -> str:
    return _replaced(match, lambda _: True)


def _assignment(match: re.Match[str]) -> str:
    if match.group("strong"):
        is_secret = (
            (lambda value: not value.isalpha()) if _is_sentence(match) else (lambda _: True)
        )
        return _replaced(match, is_secret)
    if _ORDINARY.search(match.string, max(0, match.start() - 16), match.start()):
        return match.group(0)
    name = match.group("name")
    if name.isupper() and "=" in match.group("between"):
        # A variable of the environment.
        return _replaced(match, lambda value: not value.isdecimal())
    quoted = match.group("quote") is not None
    prose = ":" in match.group("between") and not quoted
    return _replaced(match, lambda value: _is_token(value, prose=prose))


def _is_sentence(match: re.Match[str]) -> bool:
    """Whether the name is the word for the object of Kubernetes, as in `a Secret: create it`."""
    before = match.string[max(0, match.start() - 1) : match.start()]
    return match.group("name") == "Secret" and before.isspace()


def _is_token(value: str, *, prose: bool) -> bool:
    """Whether the value of a plain `token` may be a credential, and not a word or a number."""
    if value.isdecimal() or value.startswith("<"):
        return False
    if prose:
        return len(value) >= 8 or (len(value) >= 4 and any(c.isdecimal() for c in value))
    return len(value) >= 4


def _replaced(match: re.Match[str], is_secret: Callable[[str], bool]) -> str:
    """The match without its value, if this is a secret; structure after the value is kept."""
    value = match.group("inner") if match.group("quote") else match.group("plain") or ""
    if value.startswith(REMOVED) or _TRAILING.sub("", value).lower() in _NO_VALUE | {""}:
        return match.group(0)
    if not is_secret(value):
        return match.group(0)
    start = match.start("inner") if match.group("quote") else match.start("plain")
    tail = "" if match.group("quote") else "".join(_TRAILING.findall(value))
    return f"{match.group(0)[: start - match.start()]}{REMOVED}{tail}"
