"""The decoder of zstd frames gives what the zstandard package packed, and errors for everything else."""

from __future__ import annotations

import ctypes
import random
from contextlib import suppress

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.native.native_parts import parts

from mvprune.artifact.coding import encode_gaps, encode_mask

LEVELS = (-5, 1, 3, 6, 9, 12, 16, 19)


def unpack(frame: bytes, size: int) -> bytes:
    """The content of a frame.

    Raises:
        ValueError: what the decoder says.
    """
    out = (ctypes.c_char * max(size, 1)).from_buffer(bytearray(b"\xcd" * (size + 64)))
    wrong = parts().test_zstd_unpack(frame, len(frame), out, size)
    if wrong:
        raise ValueError(wrong.decode())
    return bytes(out)[:size]


def _contents() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    words = b"the model answers with a class and its score, and the score is a number".split()
    text = b" ".join(words[i] for i in rng.integers(len(words), size=60_000))
    kept = np.flatnonzero(rng.random(2_000_000) < 0.05)
    dense = np.flatnonzero(rng.random(300_000) < 0.4)
    letters = rng.choice(np.frombuffer(b"etaoinshrdlu", np.uint8), 90_000, p=np.arange(12, 0, -1) / 78)
    return {
        "nothing": b"",
        "a byte": b"x",
        "zeros": bytes(700_000),
        "random": rng.bytes(300_000),
        "text": text,
        "letters": letters.tobytes(),
        "gaps": encode_gaps(kept).tobytes(),
        "mask": encode_mask(dense, 300_000).tobytes(),
        "float16": rng.standard_normal(60_000).astype(np.float16).view(np.uint8).reshape(-1, 2).T.tobytes(),
        "int8": np.clip(rng.standard_normal(200_000) * 20, -127, 127).astype(np.int8).tobytes(),
        "runs": b"".join(bytes([i % 251]) * (i * 7919 % 3_000) for i in range(400)),
        "far matches": (block := rng.bytes(150_000)) + block + text[:1_000] + block,
        "all bytes": bytes(range(256)) * 40,
    }


CONTENTS = _contents()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CONTENTS)
def test_contents_come_back(name: str, level: int) -> None:
    content = CONTENTS[name]
    frame = zstandard.ZstdCompressor(level=level, write_checksum=level % 2 == 0).compress(content)
    assert parts().test_zstd_size(frame, len(frame)) == len(content)
    assert unpack(frame, len(content)) == content


def test_a_frame_written_in_parts_has_blocks_of_all_sizes() -> None:
    writer = zstandard.ZstdCompressor(level=6, write_content_size=False).compressobj()
    content = CONTENTS["text"]
    sizes = [1, 10, 300, 5_000, 40_000, len(content)]
    frame = b""
    for begin, end in zip([0, *sizes], sizes, strict=False):
        frame += writer.compress(content[begin:end]) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    frame += writer.flush()
    assert parts().test_zstd_size(frame, len(frame)) == -1
    assert unpack(frame, len(content)) == content


@given(
    st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 5_000).map(bytes)), max_size=30), st.sampled_from(LEVELS)
)
def test_any_bytes_come_back(parts_of_it: list[bytes], level: int) -> None:
    content = b"".join([*parts_of_it, *parts_of_it[::2]])
    assert unpack(zstandard.ZstdCompressor(level=level).compress(content), len(content)) == content


def test_another_size_is_refused() -> None:
    content = CONTENTS["text"][:5_000]
    for stated in (True, False):
        writer = zstandard.ZstdCompressor(level=3)
        writing = writer.compressobj()  # which does not know the size
        frame = writer.compress(content) if stated else writing.compress(content) + writing.flush()
        for size in (0, 1, len(content) - 1, len(content) + 1, 2 * len(content)):
            with pytest.raises(ValueError, match="size"):
                unpack(frame, size)


def test_a_wrong_checksum_and_bytes_behind_are_refused() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"a text, a text, a text")
    with pytest.raises(ValueError, match="its checksum is wrong"):
        unpack(frame[:-1] + bytes([frame[-1] ^ 1]), 22)
    with pytest.raises(ValueError, match="bytes behind its end"):
        unpack(frame + b"\0", 22)


@pytest.mark.parametrize("name", ["text", "letters", "gaps", "float16", "runs"])
def test_frames_that_are_cut_off_are_refused(name: str) -> None:
    content = CONTENTS[name][:20_000]
    frame = zstandard.ZstdCompressor(level=9).compress(content)
    for end in {*range(20), *range(20, len(frame), max(1, len(frame) // 200)), len(frame) - 1}:
        with pytest.raises(ValueError, match=r"\w"):
            unpack(frame[:end], len(content))


@pytest.mark.parametrize("name", ["text", "letters", "gaps", "float16", "runs", "all bytes"])
def test_a_flipped_bit_gives_an_error_or_content_of_the_size(name: str) -> None:
    content = CONTENTS[name][:6_000]
    chance = random.Random(name)
    refused = 0
    for level in (1, 19):
        frame = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(content)
        for _ in range(500):
            broken = bytearray(frame)
            # Most of what can go wrong is in the headers and tables at the front.
            broken[min(int(chance.expovariate(8 / len(frame))), len(frame) - 1)] ^= 1 << chance.randrange(8)
            try:
                assert unpack(bytes(broken), len(content)) == content
            except ValueError:
                refused += 1
    assert refused > 900


@given(st.binary(max_size=200))
def test_bytes_behind_a_header_never_do_harm(noise: bytes) -> None:
    block = (len(noise) << 3 | 0b101).to_bytes(3, "little")
    frame = b"\x28\xb5\x2f\xfd\xa0" + (1_000).to_bytes(4, "little") + block + noise
    with suppress(ValueError):
        assert len(unpack(frame, 1_000)) == 1_000
