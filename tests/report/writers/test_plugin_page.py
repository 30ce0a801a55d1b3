"""The page of outputs shows what lies in a folder, whatever it holds, and runs none of it."""

from __future__ import annotations

import json
import wave
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.report.inputs.plugin_files import OutputFile, ReadBudget, read_output_files
from nnpipe.report.writers.plugin_page import OutputSection, write_output_page

EVIL = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = "
    "'owned'\">'\"&lt;"
)
OWN_TAGS = {
    "a",
    "audio",
    "body",
    "code",
    "div",
    "footer",
    "h1",
    "h2",
    "h3",
    "head",
    "header",
    "html",
    "img",
    "li",
    "link",
    "main",
    "meta",
    "nav",
    "p",
    "pre",
    "section",
    "small",
    "style",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
    "video",
}


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data


def page_of(tmp_path: Path, files, **options) -> str:
    path = tmp_path / "index.html"
    section = OutputSection("Step 1", files, "output", **options)
    write_output_page(path, f"Title {EVIL}", {f"name {EVIL}": EVIL}, [section], [EVIL])
    return path.read_text("utf-8")


def check_harmless(text: str) -> Page:
    page = Page(text)
    assert set(page.tags) <= OWN_TAGS
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        if name == "src":
            assert value.startswith("data:"), (tag, value[:50])
        if name == "href":
            inert = (
                value.startswith(("data:application/octet-stream;base64,", "#", "output/"))
                or value == "data:,"
            )
            assert inert, value[:50]
    return page


def test_each_kind_of_file_is_shown_in_its_way(tmp_path):
    files = [
        OutputFile("a.png", 8, "picture", "image/png", b"\x89PNG\r\n\x1a\n"),
        OutputFile("a.wav", 4, "audio", "audio/wav", b"RIFF"),
        OutputFile("a.mp4", 4, "video", "video/mp4", b"ftyp"),
        OutputFile("a.csv", 9, "table", "", b"x,y\n1,a\n2.5,b\n"),
        OutputFile("a.tsv", 9, "table", "", b"u\tv,w\n1\ta,b\n"),
        OutputFile("rows.json", 9, "json", "", b'[{"p": 1, "q": [2]}, {"r": null}]'),
        OutputFile("tree.json", 9, "json", "", b'{"a":{"b":1}}'),
        OutputFile("a.txt", 5, "text", "", b"one\ntwo"),
        OutputFile("a.npz", 2, "other", "", b"PK"),
        OutputFile("large.npz", 1 << 40, "other", "", None, "larger than the page"),
        OutputFile("large.html", 1 << 40, "text", "", None, "the page is full"),
        OutputFile("link", -1, "other", "", None, "a link, not followed"),
    ]
    text = page_of(tmp_path, files)
    page = check_harmless(text)
    sources = {tag: value for tag, name, value in page.attributes if name == "src"}
    assert sources == {
        "img": "data:image/png;base64,iVBORw0KGgo=",
        "audio": "data:audio/wav;base64,UklGRg==",
        "video": "data:video/mp4;base64,ZnR5cA==",
    }
    for row in (
        "<td class=number>2.5</td><td>b</td>",
        "<td class=number>1</td><td>a,b</td>",
        "<th>p</th><th>q</th>",
    ):
        assert row in text.replace(" class=number>p", ">p").replace(" class=number>q", ">q")
    assert '{\n "a": {\n  "b": 1\n }\n}' in page.text
    assert "one\ntwo" in page.text
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert links == ["data:application/octet-stream;base64,UEs=", "output/large.npz"]
    for told in ("large.html", "the page is full", "It lies in output.", "a link, not followed"):
        assert told in page.text


def test_long_tables_are_cut_and_say_so(tmp_path):
    rows = "\n".join(",".join(map(str, range(70))) for _ in range(500))
    text = page_of(tmp_path, [OutputFile("a.csv", 1, "table", "", rows.encode())])
    assert "the first 200 rows and the first 50 columns" in text
    page = Page(text)
    assert page.tags.count("tr") == 1 + 1 + 200  # with the one of the facts
    assert page.tags.count("td") == 1 + 200 * 50


def test_failures_and_what_is_not_there_are_told(tmp_path):
    assert "Nothing was written." in page_of(tmp_path, [])
    text = page_of(tmp_path, [], failure=f"mine.py: {EVIL}", more=1234)
    assert "1,234 further files" in text
    assert "Nothing was written." not in text
    assert "mine.py: &lt;script&gt;" in text
    check_harmless(text)


ANY_TEXT = st.text(max_size=60) | st.sampled_from(
    [EVIL, "]]>", "<!--", "</style><script>", "\u202e\x00\r", "\ud800"]
)


PRINTABLE = ANY_TEXT.filter(str.isprintable)
ANY_JSON = st.recursive(
    st.none() | st.floats() | PRINTABLE,
    lambda inner: st.lists(inner) | st.dictionaries(PRINTABLE, inner),
    max_leaves=6,
).map(lambda value: json.dumps([value]).encode())


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=ANY_TEXT.filter(bool),
    ending=st.sampled_from([".csv", ".json", ".txt", ".svg", ".png", ".html", ".xyz", ".wav", ""]),
    content=ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=60)
    | ANY_JSON,
    refused=st.booleans(),
)
def test_no_name_and_no_content_gets_out_of_its_place(tmp_path, name, ending, content, refused):
    folder = tmp_path / "output"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    try:
        path = folder / (name.replace("/", "-").replace("\0", "-")[:60] + ending)
        path.write_bytes(content)
        files, _ = read_output_files(folder, ReadBudget(each=0 if refused else 1 << 20))
    # the file system takes no such name, but one may come from elsewhere
    except (OSError, UnicodeEncodeError):
        files = [OutputFile(name + ending, len(content), "text", "", content)]
    check_harmless(page_of(tmp_path, files))


# -- in a real browser
# --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A page of files each of which tries something."""
    root = tmp_path_factory.mktemp("hostile")
    folder = root / "output"
    folder.mkdir()
    for name in (
        "page.html",
        f"{EVIL.replace('/', '-')}.txt",
        "noext",
        "data.json",
        "x.xhtml",
        "style.css",
    ):
        (folder / name).write_text(EVIL)
    (folder / "rows.csv").write_text(f"{EVIL}\n{EVIL}\n")
    (folder / "picture.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg' width='80' height='60' onload=\"document.title = "
        "'owned'\">"
        "<script>document.title = 'owned'; fetch('http://127.0.0.1:9/svg')</script>"
        "<image href='http://127.0.0.1:9/picture.png' width='9' height='9'/><rect width='80' "
        "height='60'/></svg>"
    )
    (folder / "not.png").write_text(EVIL)
    (folder / "unknown.xyz").write_bytes(b"\0" + EVIL.encode())
    (folder / "import.css").write_text("@import 'http://127.0.0.1:9/style.css';")
    with wave.open(str(folder / "tone.wav"), "wb") as tone:
        tone.setnchannels(1)
        tone.setsampwidth(2)
        tone.setframerate(8000)
        tone.writeframes(bytes(8000))
    (folder / "wide.csv").write_text(
        "\n".join(",".join(str(n * 1000) for n in range(40)) for _ in range(9))
    )
    (folder / "long.txt").write_text("x" * 5000)
    (folder / "passwd.txt").symlink_to("/etc/passwd")
    files, _ = read_output_files(folder, ReadBudget())
    sections = [
        OutputSection(f"Step {n} of 20 (samples 0 to 9)", files if n == 1 else [], "output")
        for n in range(1, 21)
    ]
    write_output_page(root / "index.html", EVIL, {"SHA-256": "0" * 64}, sections)
    return root / "index.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_everything_and_runs_and_loads_nothing(browser, hostile, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(hostile.as_uri())
    page.wait_for_function("document.querySelector('img').complete")
    page.wait_for_function("document.querySelector('audio').readyState > 0")
    assert page.title().startswith("<script>")
    assert (
        page.evaluate("document.querySelectorAll('script, iframe, object, embed, base').length")
        == 0
    )
    assert page.evaluate("document.querySelector('img').naturalWidth") == 80
    assert page.evaluate("document.querySelector('audio').duration") == 0.5
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert "root:" not in page.content()
    assert {url for url in requests if not url.startswith("data:")} == {hostile.as_uri()}
    assert complaints == []
    page.close()


def test_a_file_that_cannot_be_shown_is_saved_under_its_name(browser, hostile):
    page = browser.new_page(accept_downloads=True)
    page.goto(hostile.as_uri())
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save this file").last.click()
    assert saved.value.suggested_filename == "unknown.xyz"
    assert Path(saved.value.path()).read_bytes() == b"\0" + EVIL.encode()
    assert page.url == hostile.as_uri()
    page.close()
