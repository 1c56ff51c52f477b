"""The documentation as a site: a strict build succeeds, and pages show the tested manifests."""

import hashlib
import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
THEME = ROOT / "theme"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Without --quiet, because mkdocs counts only the warnings that it prints.
    argv = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(config),
        "-d",
        str(site),
    ]
    # Turn off the theme's advertisement of MkDocs 2, which would pause the build for a reader.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page: Path) -> str:
    """Return the text of a built page without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 50
    for page in pages:
        assert (site / page).is_file(), page


@pytest.mark.slow
def test_every_method_is_shown_with_its_tested_manifest(site: Path) -> None:
    page = text_of(site / "methods.html")
    for sample in SAMPLES:
        if sample.stem == "reference-pair":
            continue  # not a SpeculativeModel: the claim that the other samples read
        text = sample.read_text("utf-8").strip()
        assert text in page, sample.name


class Loads(HTMLParser):
    """The addresses of all files that a browser loads to show a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        address = fields.get("src") or (fields.get("href") if tag == "link" else None)
        if address:
            self.addresses.append(address)


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        addresses = Loads(page.read_text("utf-8")).addresses
        assert any(address.endswith("assets/specdec.css") for address in addresses)
        for address in addresses:
            assert "//" not in address, f"{page.name}: {address}"
            # The page for status 404 has addresses that start at the root of the server.
            folder = site if address.startswith("/") else page.parent
            assert (folder / address.split("?")[0].lstrip("/")).exists(), address


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("concepts", 3), ("architecture", 2), ("install", 0)])
def test_pages_with_diagrams_bring_their_script(site: Path, name: str, count: int) -> None:
    text = (site / f"{name}.html").read_text("utf-8")
    assert text.count('<pre class="mermaid">') == count
    addresses = Loads(text).addresses
    scripts = [address for address in addresses if address.endswith("mermaid.tiny.js")]
    assert len(scripts) == bool(count)
    if scripts:
        # If the local script comes later, the theme has already requested it from another host.
        (bundle,) = [address for address in addresses if "/bundle." in address]
        assert addresses.index(scripts[0]) < addresses.index(bundle)


def shown(browser: str, address: str, profile: Path) -> str:
    """Return the DOM of a local page after its scripts have run without a network."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
    argv = [browser, *options, "--dump-dom", address]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.slow
def test_browser_draws_every_diagram(site: Path, browser: str, tmp_path: Path) -> None:
    page = shown(browser, (site / "concepts.html").as_uri(), tmp_path)
    # The theme replaces the text of a diagram by an element with the drawing.
    assert page.count('<div class="mermaid"') == 3
    assert '<pre class="mermaid"' not in page


@pytest.mark.slow
def test_browser_searches_local_files(site: Path, browser: str, tmp_path: Path) -> None:
    page = shown(browser, (site / "index.html").as_uri() + "?q=tutorial", tmp_path)
    results = re.findall(r'<a href="([^"?]*)[^>]* class="md-search-result__link"', page)
    assert any("tutorial.html" in result for result in results), results


@pytest.mark.parametrize(
    ("path", "digest"),
    [
        (
            "mermaid/mermaid.tiny.js",
            "7a644017d37f93c8359790884e6b67fb1f747c78eb20475952404bd87190a3f8",
        ),
        (
            "iframe-worker/shim.js",
            "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609",
        ),
    ],
)
def test_scripts_of_others_are_unchanged(path: str, digest: str) -> None:
    """The scripts are files of npm packages; the digests are those of the published files."""
    file = THEME / "assets" / path
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert "Permission is hereby granted" in (file.parent / "LICENSE").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[to](nowhere.md)",
        "# Here\n\n[to](#there)",
        '```yaml\n--8<-- "manifests/samples/none.yaml"\n```',
    ],
    ids=["page", "anchor", "manifest"],
)
def test_a_broken_reference_fails_the_build(tmp_path: Path, text: str) -> None:
    (tmp_path / "docs").mkdir()
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nnot_in_nav: ''\n"
        f"theme: {{custom_dir: {THEME}}}\n"
    )
    for page, broken in (("# Whole", False), (text, True)):
        (tmp_path / "docs" / "index.md").write_text(page)
        done = build(config, tmp_path / "site")
        assert (done.returncode != 0) is broken, done.stdout + done.stderr


def test_links_of_the_readme_lead_to_a_heading() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for path, anchor in re.findall(r"\]\((docs/[\w/.-]+)#([\w-]+)\)", text):
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert anchor in slugs, f"{path}#{anchor}"
