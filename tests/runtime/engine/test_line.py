"""No bytes that come out of an engine's line hurt its host."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.engine.impostors import IMPATIENT, after_ready, opened, view

from sterna.errors import EngineEnded
from sterna.runtime.engine.messages import EngineRequest, Judge


@settings(max_examples=30, deadline=None)
@given(garbage=st.binary(min_size=1, max_size=200))
def test_no_bytes_hurt_the_host(garbage: bytes) -> None:
    async def talk() -> None:
        def answer(question: EngineRequest) -> bytes | None:
            return garbage if isinstance(question, Judge) else ready(question)

        ready = after_ready(None)
        engine, _ = await opened(answer, page_seconds=IMPATIENT)
        with pytest.raises(EngineEnded):
            await engine.judge(view(1))
        await engine.close()

    asyncio.run(talk())
