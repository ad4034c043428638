"""Why a call failed, as a client gets it over a real connection."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from tests.refusals import status_details
from tests.unit.service.serving import serving
from tests.waiting import PATIENCE

from mvprune.v1 import catalog_pb2, catalog_pb2_grpc
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.errors import Violation, invalid


class Refusing(catalog_pb2_grpc.CatalogServiceServicer):
    """Finds as many faults as the page is long, each told in the token's words."""

    async def ListMethods(self, request: catalog_pb2.ListMethodsRequest, context: Any) -> Any:
        raise invalid(*(Violation(f"field_{index}", request.page_token) for index in range(request.page_size)))


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
async def test_no_error_is_too_large_for_its_client(letter: str) -> None:
    """It would be RESOURCE_EXHAUSTED, in gRPC's words."""
    calls = Calls()
    catalog_pb2_grpc.add_CatalogServiceServicer_to_server(Refusing(), calls)
    async with serving(calls) as channel:
        stub: Any = catalog_pb2_grpc.CatalogServiceStub(channel)
        request = catalog_pb2.ListMethodsRequest(page_token=letter * 1000, page_size=100)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListMethods(request, timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value.details()).startswith(f"field_0: {letter}")
    bad = error_details_pb2.BadRequest()
    assert status_details(caught.value)[1].Unpack(bad)
    assert [violation.field for violation in bad.field_violations] == [f"field_{index}" for index in range(7)]
    assert all(set(violation.description) == {letter} for violation in bad.field_violations)
