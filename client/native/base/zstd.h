// A decoder of zstd frames (RFC 8878), for any bytes: without dictionaries, and into memory that the caller provides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace mvprune {

// The unpacked size that a frame's header states. None: it states none, or the bytes do not begin a frame.
std::optional<uint64_t> zstd_size(const uint8_t* frame, size_t bytes);

// Unpacks one whole frame, with nothing behind it, into exactly `size` bytes. Its window is all of them.
// Returns null, or what is wrong: `out` then has any contents.
const char* zstd_unpack(const uint8_t* frame, size_t bytes, uint8_t* out, size_t size);

}  // namespace mvprune
