"""What a server says of its endpoints."""

from __future__ import annotations

import httpx
import jsonschema


def check_description(client: httpx.Client) -> set[str]:
    """Checks that each endpoint answers the example that stands beside it. Returns their paths."""
    document = client.get("/openapi.json").json()
    page = client.get("/docs")
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, methods in document["paths"].items():
        assert path in page.text
        for method, one in methods.items():
            url, sent = path.replace("{version}", "1").replace("{model}", "tiny"), None
            if body := one.get("requestBody"):
                media = body["content"]["application/json"]
                jsonschema.validate(sent := media["example"], media["schema"])
            answer = client.request(method, url, json=sent)
            if "no chat template" in answer.text:
                continue
            assert answer.status_code == 200, (path, answer.text)
            media_type = answer.headers["content-type"].partition(";")[0]
            assert [*one["responses"]["200"]["content"]] == [media_type], path
    return {*document["paths"]}
