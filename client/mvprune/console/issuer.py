"""Login by an issuer of OpenID Connect: authorization code with PKCE.

The browser is sent to the issuer and comes back with a code, which the console changes for an ID token. The server
takes that token as it takes those of CI systems (its --issuers-file): it checks the signature and decides the rights.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from mvprune.common import openid
from mvprune.common.exceptions import NotAuthorised, ServerUnreachable

SECONDS = 600  # that a user may take at the issuer
_CONFIGURATION_SECONDS = 600.0  # for which what the issuer says of itself is good
_LONGEST_PATH = 1000  # characters: it has to fit into a cookie
_EARLY_SECONDS = 60.0  # before its end a token is replaced


@dataclass(frozen=True)
class Provider:
    """An issuer by which users log in.

    Attributes:
        url: as the issuer says it of itself.
        client_id, secret: of the console at the issuer; "": a public client, which only PKCE protects.
        scopes: that are asked for.
    """

    url: str
    client_id: str
    secret: str = field(default="", repr=False)
    scopes: str = "openid"

    @property
    def host(self) -> str:
        """How users call it."""
        return self.url.partition("://")[2].partition("/")[0]

    def tokens(self, url: str, **form: str) -> dict[str, Any]:
        """What the issuer gives for a code or a refresh token. Blocks. Raises NotAuthorised, ServerUnreachable."""
        fields = {**form, "client_id": self.client_id}
        headers = {"Accept": "application/json"}
        if self.secret:
            pair = f"{quote(self.client_id, safe='')}:{quote(self.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            said = json.loads(openid.fetch(url, form=urlencode(fields).encode(), headers=headers))
            if not isinstance(said, dict) or not isinstance(said.get("id_token"), str):
                raise ValueError("its answer has no ID token")
        except HTTPError as error:
            if error.code in (400, 401, 403):
                raise self.refused("does not accept this login any more; log in again") from None
            raise self._away(error) from None
        except (OSError, ValueError) as error:
            raise self._away(error) from None
        return said

    def configuration(self) -> Mapping[str, Any]:
        """What the issuer says of itself. Blocks. Raises ServerUnreachable."""
        try:
            said = openid.configuration(self.url)
            return {name: openid.endpoint(said, name) for name in ("authorization_endpoint", "token_endpoint")}
        except (OSError, ValueError) as error:
            raise self._away(error) from None

    def refused(self, text: str) -> NotAuthorised:
        """An error that ends the login or the session."""
        return NotAuthorised(f"{self.host} {text}", code="UNAUTHENTICATED")

    def _away(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(f"{self.host} does not answer as it should ({openid.why(error)})")


class IssuerTokens:
    """The ID tokens of a user who has logged in: while the issuer gives refresh tokens, a newer one before each ends.

    Args:
        said: what the issuer gave.
        url: that gives more.

    Attributes:
        renewed: is called after each renewal, by the thread of it.
    """

    def __init__(self, provider: Provider, url: str, said: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
        self._provider, self._url = provider, url
        self._subject = claims.get("sub")
        self._lock = Lock()
        self.renewed: Callable[[], None] = lambda: None
        self._take(said, claims)

    @classmethod
    def of(cls, provider: Provider, kept: Mapping[str, str]) -> IssuerTokens:
        """The tokens of which `kept` was the answer."""
        return cls(provider, kept["url"], kept, claims_of(kept["id_token"]))

    def kept(self) -> dict[str, str]:
        """All that another process needs to go on with them."""
        return {"url": self._url, "id_token": self.token, "refresh_token": self._refresh}

    def is_due(self) -> bool:
        """Whether the token ends soon and can be replaced."""
        return bool(self._refresh) and time.time() > self._end - _EARLY_SECONDS

    def renew(self) -> None:
        """Asks for a newer token. Blocks. Raises NotAuthorised, ServerUnreachable."""
        with self._lock:
            if not self.is_due():
                return
            said = self._provider.tokens(self._url, grant_type="refresh_token", refresh_token=self._refresh)
            claims = claims_of(said["id_token"])
            if claims.get("sub") != self._subject:
                raise self._provider.refused("gave the token of someone else")
            self._take({"refresh_token": self._refresh, **said}, claims)
            self.renewed()

    def _take(self, said: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
        self.token = str(said["id_token"])
        self._refresh = str(said.get("refresh_token") or "")
        end = claims.get("exp")
        self._end = float(end) if isinstance(end, int | float) else 0.0


class _Begun(NamedTuple):
    """A login under way. The browser that began it keeps it, sealed.

    Attributes:
        then: where the user wanted to go.
        back: the address to which the issuer sends the browser.
        token_url: of the issuer.
        end: time of the clock until which it is good.
    """

    state: str
    verifier: str
    nonce: str
    then: str
    back: str
    token_url: str
    end: float


class Logins:
    """Begins logins and finishes them. Nothing of those under way is kept here: whoever begins many keeps out nobody.

    Args:
        clock: seconds.
    """

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.time) -> None:
        self.provider = provider
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._known: tuple[Mapping[str, Any], float] = {}, -math.inf  # the configuration, and until when it is good

    async def begin(self, then: str, back: str) -> tuple[str, str]:
        """Where to send the browser, and what it has to bring along when it comes back. Raises ServerUnreachable."""
        known, until = self._known
        if self._clock() > until:
            known = await asyncio.to_thread(self.provider.configuration)
            self._known = known, self._clock() + _CONFIGURATION_SECONDS
        begun = _Begun(
            state=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            nonce=secrets.token_urlsafe(32),
            then=then if len(then) <= _LONGEST_PATH else "",
            back=back,
            token_url=known["token_endpoint"],
            end=self._clock() + SECONDS,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": back,
            "scope": self.provider.scopes,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{known['authorization_endpoint']}?{urlencode(query)}", self._sealed(begun)

    async def finish(self, query: Mapping[str, str], brought: str) -> tuple[IssuerTokens, str]:
        """The tokens of the user who has come back, and where the user wanted to go.

        Args:
            query: of the address to which the issuer has sent the browser.
            brought: what the browser brings along.

        Raises:
            NotAuthorised: the issuer has refused, or another browser began the login.
            ServerUnreachable: the issuer does not answer.
        """
        provider, begun = self.provider, self._opened(brought)
        if begun is None or not hmac.compare_digest(begun.state.encode(), query.get("state", "").encode()):
            raise provider.refused("sent a browser that had not begun to log in here; log in again")
        if self._clock() > begun.end or query.get("iss", provider.url) != provider.url:
            raise provider.refused("took too long; log in again")
        if not query.get("code"):
            raise provider.refused(f"refuses the login ({query.get('error', 'no code')[:100]!a})")
        form = {"code": query["code"], "redirect_uri": begun.back, "code_verifier": begun.verifier}
        said = await asyncio.to_thread(
            lambda: provider.tokens(begun.token_url, grant_type="authorization_code", **form)
        )
        claims = claims_of(said["id_token"])
        audience = claims.get("aud")
        is_meant = provider.client_id in (audience if isinstance(audience, list) else [audience])
        if claims.get("iss") != provider.url or not is_meant or claims.get("nonce") != begun.nonce:
            raise provider.refused("gave a token that is not for this login")
        return IssuerTokens(provider, begun.token_url, said, claims), begun.then

    def _sealed(self, begun: _Begun) -> str:
        text = base64.urlsafe_b64encode(json.dumps(begun).encode()).decode()
        return f"{text}.{hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()}"

    def _opened(self, brought: str) -> _Begun | None:
        """None for what this console has not sealed."""
        text, _, seal = brought.partition(".")
        expected = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), seal.encode()):
            return None
        return _Begun(*json.loads(base64.urlsafe_b64decode(text)))


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a token, whose signature the server checks; none if it is no JWT."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
