"""Who may look at the page, and that nothing but the page is served."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from nacdrive.web import LiveServer


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode(errors="replace")


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.mark.parametrize(
    "path",
    [
        "/../README.md",
        "/..%2fREADME.md",
        "/%2e%2e/%2e%2e/pyproject.toml",
        "/js/../../../pyproject.toml",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/js/..%5c..%5cREADME.md",
        "/README.md",
    ],
)
def test_no_file_outside_www_is_served(server: LiveServer, path: str) -> None:
    status, _, text = ask(server, path)
    assert status in (404, 308)
    assert "nacdrive" not in text and "root:" not in text


def test_every_answer_carries_the_content_security_policy(server: LiveServer) -> None:
    for path in ("/", "/js/main.js", "/nothing"):
        _, headers, _ = ask(server, path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
        {"Host": "evil.example:8090"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_another_sites_page_is_refused(server: LiveServer, headers: dict[str, str]) -> None:
    assert ask(server, "/js/main.js", **headers)[0] == 403


def test_a_link_from_elsewhere_opens_the_page(server: LiveServer) -> None:
    assert ask(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_the_stream_is_for_the_own_page_only(server: LiveServer, origin: str | None) -> None:
    headers = {**UPGRADE, **({"Origin": origin} if origin else {})}
    assert ask(server, "/stream", **headers)[0] == 403


def test_the_page_cannot_be_written_to(server: LiveServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, "/", method)[0] == 405


def test_from_another_machine_a_one_time_token_is_needed() -> None:
    said: list[str] = []
    with LiveServer(host="0.0.0.0", port=0, announce=said.append) as server:
        assert ask(server, "/")[0] == 403
        token = urlsplit(server.url).query
        status, headers, _ = ask(server, f"/?{token}")
        assert status == 302
        cookie = headers["Set-Cookie"].split(";")[0]
        assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Lax" in headers["Set-Cookie"]
        assert ask(server, "/", Cookie=cookie)[0] == 200
        assert ask(server, f"/?{token}")[0] == 403, "the token is used up"
        assert token not in said[0] and "token=" in said[0], "a fresh one is printed"
        assert ask(server, "/stream", **UPGRADE, Origin=f"http://127.0.0.1:{server.port}")[0] == 403


def test_a_wrong_cookie_is_refused() -> None:
    with LiveServer(host="0.0.0.0", port=0, announce=lambda _: None) as server:
        assert ask(server, "/", Cookie="nacdrive_viewer=guess")[0] == 403
