"""Who may ask the studio, by each of the ways in which others could try."""

import pytest

from glasshead.studio.app import application
from glasshead.studio.studio import Studio
from studio.asking import ask, run

OWN = ("host", "localhost:8765")
TOKEN = "a-token-of-33-characters-000000000"
ALWAYS = (
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-resource-policy",
    "cache-control",
)


@pytest.fixture(scope="module")
def app():
    return application(Studio())


@pytest.fixture(scope="module")
def guarded():
    return application(Studio(), hosts=("0.0.0.0", "mybox"), token=TOKEN)


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "127.0.0.1:65535", "[::1]:8765", "[::1]"]
)
def test_the_studio_answers_to_its_own_names(app, host):
    assert ask(app, "/api/health", headers=(("host", host),)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.com", "evil.com:8765", "localhost.evil.com", "localhost.", "", ":80", "localhost:",
     "localhost:99999", "localhost:8a", "localhost:1:2", "[::1", "[::1]8", "[localhost]", "::1",
     "127.0.0.1.", "127.1", "192.168.0.7", "localhost@evil.com", "localhost, evil.com", "é"],
)  # fmt: skip
def test_another_name_is_refused(app, host):
    answer = ask(app, "/api/health", headers=(("host", host),))
    assert answer.status == 421
    assert answer.detail == "the studio answers only under its own address. Open that one."


@pytest.mark.parametrize("hosts", [(), (OWN, OWN), (OWN, ("host", "evil.com"))])
def test_one_host_is_named_and_no_more(app, hosts):
    assert ask(app, headers=hosts).status == 421


def test_all_addresses_are_own_ones_where_the_studio_listens_on_all(guarded):
    for host, status in (("192.168.0.7:1", 401), ("[fe80::1]", 401), ("mybox", 401), ("no", 421)):
        assert ask(guarded, headers=(("host", host),)).status == status


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.com", "http://localhost:3000", "http://localhost", "localhost:8765",
     "file://localhost:8765", "http://localhost:8765.evil.com", "http://evil.com@localhost:8765",
     "", "http://127.0.0.1:8765"],
)  # fmt: skip
def test_a_page_from_elsewhere_is_refused(app, origin):
    for method in ("GET", "POST", "OPTIONS"):
        answer = ask(app, "/api/texts", method=method, headers=(OWN, ("origin", origin)))
        assert answer.status == 403
        assert answer.detail == "the studio answers only its own page. Open the page itself."


def test_the_own_page_is_answered(app):
    own = (OWN, ("origin", "http://localhost:8765"), ("sec-fetch-site", "same-origin"))
    assert ask(app, "/api/health", headers=own).status == 200
    assert ask(app, "/api/health", headers=(*own, ("origin", "http://evil.com"))).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_another_site_may_link_to_the_page_and_do_nothing_else(app, site):
    def told(path="/", mode="navigate", dest="document", method="GET"):
        fetch = (("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest))
        return ask(app, path, method=method, headers=(OWN, *fetch)).status

    assert told() == 200
    assert told(path="/api/about") == 403
    assert told(dest="iframe") == 403
    assert told(method="POST") == 403
    assert told(path="/static/app.js", mode="no-cors", dest="script") == 403
    assert told(path="/api/about", mode="cors", dest="empty") == 403


def test_no_answer_lets_another_origin_read(app):
    preflight = (("access-control-request-method", "POST"),)
    for method, path in (("GET", "/"), ("OPTIONS", "/api/texts"), ("GET", "/api/nothing")):
        for origin in ((), (("origin", "http://localhost:8765"),), (("origin", "null"),)):
            answer = ask(app, path, method=method, headers=(OWN, *origin, *preflight))
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", (OWN,), 200),
        ("GET", "/static/style.css", (OWN,), 200),
        ("GET", "/static/app.js", (OWN,), 200),
        ("GET", "/api/openapi.json", (OWN,), 200),
        ("GET", "/api/nothing", (OWN,), 404),
        ("GET", "/api/about/", (OWN,), 404),
        ("GET", "/docs", (OWN,), 404),
        ("DELETE", "/api/about", (OWN,), 405),
        ("TRACE", "/", (OWN,), 405),
        ("POST", "/static/app.js", (OWN,), 405),
        ("POST", "/api/texts", (OWN,), 422),
        ("POST", "/api/texts", (OWN, ("content-length", "99999999999")), 413),
        ("GET", "/api/words", (OWN, ("origin", "null")), 403),
        ("GET", "/", (), 421),
    ],
)
def test_every_answer_says_what_a_page_may_do(app, method, path, headers, status):
    answer = ask(app, path, method=method, headers=headers)
    assert answer.status == status
    assert all(name in answer.headers for name in ALWAYS)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    if status >= 400:
        assert len(answer.detail.split()) > 2


@pytest.mark.parametrize(
    "path",
    ["/static/../page.py", "/static/../../cli/app.py", "/static//etc/passwd", "/static/..",
     "/static/views/../../subject.py", "/static/", "/static", "/static/..\\page.py",
     "/static/" + "a" * 5000],
)  # fmt: skip
def test_no_path_leads_out_of_what_is_served(app, path):
    assert ask(app, path, headers=(OWN,)).status == 404


@pytest.mark.parametrize(
    "path", ["/static/a\0b", "/\n", "http://localhost:8765/", "*", "", "/a\u202eb", "/\udc80"]
)
def test_a_path_is_plain(app, path):
    assert ask(app, path, headers=(OWN,)).status == 400


def test_websockets_are_refused(app):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    run(app({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


PATHS = (
    "/",
    "/static/style.css",
    "/static/app.js",
    "/api/openapi.json",
    "/api/about",
    "/api/nothing",
)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(guarded, path):
    cookie = ask(guarded, query=f"token={TOKEN}").headers["set-cookie"].split(";")[0]
    name = cookie.split("=")[0]
    for given in ("", "token=", "token=wrong", f"token={TOKEN}x", "token=%C3%A9", "token=%ff"):
        answer = ask(guarded, path, query=given)
        assert answer.status == 401
        assert (
            answer.detail
            == "the address lacks the studio's token. Open the address that the studio printed."
        )
        assert "set-cookie" not in answer.headers
    for given in (f"{name}=", f"{name}=wrong", f"x{cookie}", f"glasshead={TOKEN}", "é", ";=;"):
        answer = ask(guarded, path, headers=(OWN, ("cookie", given)))
        assert answer.status == 401


@pytest.mark.parametrize("path", PATHS)
def test_with_the_token_or_its_cookie_all_is_answered(guarded, app, path):
    status = ask(app, path).status
    answer = ask(guarded, path, query=f"token={TOKEN}")
    assert answer.status == status
    cookie, *how = answer.headers["set-cookie"].split("; ")
    assert sorted(how) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    # Those of other servers on this host, in whatever form, stand beside it.
    among = f'theme="dark; a[b]=1; {cookie}; x'
    again = ask(guarded, path, headers=(OWN, ("cookie", among)))
    assert again.status == status
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("other", [("host", "evil.com"), ("origin", "http://evil.com")])
def test_who_is_refused_gets_no_cookie_for_the_token(guarded, other):
    headers = (other,) if other[0] == "host" else (OWN, other)
    answer = ask(guarded, query=f"token={TOKEN}", headers=headers)
    assert answer.status in (403, 421)
    assert "set-cookie" not in answer.headers


def test_two_studios_of_one_host_have_cookies_of_their_own(guarded):
    other = application(Studio(), token="another")
    names = {
        ask(one, query=f"token={token}").headers["set-cookie"].split("=")[0]
        for one, token in ((guarded, TOKEN), (other, "another"))
    }
    assert len(names) == 2
