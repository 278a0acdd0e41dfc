"""Shared by the corpora of hostile requests: files that requests may not have, and the growth of a server that they may cause."""

# Growth of a server that its allocator may keep after a corpus; the corpora themselves are several times larger.
GROWTH_MAX_KB = 32 * 1024
FILES_GROWTH_MAX = 8

PDF = "data:application/pdf;base64,JVBERi1x"


def wrong_files() -> list[tuple[dict, str]]:
    """Files, each with the name of its wrong field."""
    contents = ["", 7, [], {}, "JVBERi0=", "data:", "data:application/pdf,x", "data:application/pdf;base64,"]
    contents += ["data:application/pdf;base64,%%%", "data:application/pdf;base64,JV", "data:image/png;base64,eA=="]
    contents += ["data:application/x-msdownload;base64,eA==", "data:text/plain;base64,/w==", "file:///etc/passwd"]
    names = [7, [], {}, "a\nb", "a\u0000", "x" * 501]
    wrong = [({"file_data": content}, "file_data") for content in contents]
    return wrong + [({"file_data": PDF, "filename": name}, "filename") for name in names]


def wrong_documents() -> list[tuple[dict, str]]:
    """Documents of the Messages API, each with the name of its wrong field."""
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "eA=="}
    sources = [
        *(({**pdf, "data": data}, "data") for data in ("eA", "", "%%%", 7)),
        *(({**pdf, "media_type": kind}, "media_type") for kind in ("text/plain", "image/png", "", 7)),
        ({"type": "file", "file_id": "f"}, "type"),
        *(({"type": "url", "url": url}, "url") for url in ("file:///etc/passwd", "http://", PDF, "", 7)),
    ]
    titles = ["a\nuser: b", "a\u0000", "x" * 501, 7, []]
    wrong = [({"type": "document", "source": source}, f"source.{field}") for source, field in sources]
    return wrong + [({"type": "document", "title": title, "source": pdf}, "title") for title in titles]
