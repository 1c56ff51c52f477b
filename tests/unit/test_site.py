"""The documentation as a site: it builds strictly, and shows the manifests that are tested."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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
    # Its theme advertises its successor, and a build must not wait for a terminal to be read.
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
    """The text of a built page without its marks."""
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
            continue  # no resource of ours: the claim that the others read
        text = sample.read_text("utf-8").strip()
        assert text in page, sample.name


@pytest.mark.slow
def test_diagrams_are_drawn(site: Path) -> None:
    page = (site / "concepts.html").read_text("utf-8")
    assert page.count('<pre class="mermaid">') == 3


@pytest.mark.slow
def test_every_section_is_a_tab(site: Path) -> None:
    page = (site / "install.html").read_text("utf-8")
    tabs = re.findall(r'class="md-tabs__link"[^>]*>\s*(.*?)\s*</a>', page, re.DOTALL)
    assert tabs == ["Start", "Concepts", "How-to", "Reference", "Develop"]


@pytest.mark.slow
def test_a_page_links_to_its_neighbours(site: Path) -> None:
    page = (site / "install.html").read_text("utf-8")
    links = dict(
        re.findall(r'<a href="([^"]*)" class="md-footer__link md-footer__link--(\w+)"', page)
    )
    assert links == {"start-gpu.html": "prev", "faq.html": "next"}


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
    (tmp_path / "docs" / "index.md").write_text(text)
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nnot_in_nav: ''\n"
    )
    assert build(config, tmp_path / "site").returncode != 0


def test_links_of_the_readme_lead_to_a_heading() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for path, anchor in re.findall(r"\]\((docs/[\w/.-]+)#([\w-]+)\)", text):
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert anchor in slugs, f"{path}#{anchor}"
