// Normal forms as UAX #15 defines them. A character that becomes several gives all of them its source; of those that
// become one, the first one's source stays. Where characters change places, the sources do not.
#include "unicode.h"

#include <algorithm>
#include <cstddef>

#include "runs.h"
#include "unicode_data.h"

namespace mvprune {
namespace {

constexpr uint32_t kHangul = 0xAC00, kHangulCount = 11172, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;

int class_of(uint32_t code) {
  if (code < 0x300) return 0;
  static const Runs runs(kCombiningLengths, kCombiningValues);
  return static_cast<int>(runs.of(code));
}

template <size_t N, typename Emit>
bool look_up(const uint32_t (&codes)[N], const uint16_t* starts, const uint32_t* parts, uint32_t code, Emit emit) {
  const uint32_t* const found = std::lower_bound(codes, codes + N, code);
  if (found == codes + N || *found != code) return false;
  for (size_t i = starts[found - codes]; i < starts[found - codes + 1]; ++i) emit(parts[i]);
  return true;
}

template <typename Emit>
void decompose_one(uint32_t code, bool compatible, Emit emit) {
  if (code < 0xA0) return emit(code);
  if (code - kHangul < kHangulCount) {
    const uint32_t place = code - kHangul;
    emit(kLead + place / 588);
    emit(kVowel + place % 588 / 28);
    if (place % 28) emit(kTail + place % 28);
    return;
  }
  if (compatible && look_up(kCompatible, kCompatibleStarts, kCompatibleParts, code, emit)) return;
  if (!look_up(kCanonical, kCanonicalStarts, kCanonicalParts, code, emit)) emit(code);
}

// 0: the two do not compose.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first - kLead < 19 && second - kVowel < 21) return kHangul + ((first - kLead) * 21 + second - kVowel) * 28;
  if (first - kHangul < kHangulCount && (first - kHangul) % 28 == 0 && second - kTail - 1 < 27) {
    return first + second - kTail;
  }
  size_t low = 0, high = sizeof kComposed / sizeof *kComposed / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const uint32_t* const row = kComposed + 3 * middle;
    if (row[0] == first && row[1] == second) return row[2];
    if (row[0] < first || (row[0] == first && row[1] < second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 0;
}

// Whether no character has another form.
bool is_plain(const Chars& text) {
  return std::all_of(text.begin(), text.end(), [](const Char& one) { return one.code < 0xA0; });
}

std::vector<Change> decomposed(const Chars& text, bool compatible) {
  std::vector<Change> changes;
  changes.reserve(text.size() + 16);
  size_t ordered = 0;  // from here on are combining characters
  const auto order = [&] {
    std::stable_sort(changes.begin() + static_cast<std::ptrdiff_t>(ordered), changes.end(),
                     [](const Change& a, const Change& b) { return class_of(a.code) < class_of(b.code); });
  };
  for (const Char& one : text) {
    int change = 0;
    decompose_one(one.code, compatible, [&](uint32_t part) {
      if (class_of(part) == 0) {
        order();
        ordered = changes.size() + 1;
      }
      changes.push_back({part, change});
      change = 1;
    });
  }
  order();
  return changes;
}

}  // namespace

void rewrite(Chars& text, const std::vector<Change>& changes) {
  Chars to;
  to.reserve(changes.size());
  size_t at = 0;
  for (const Change& one : changes) {
    const size_t source = one.change > 0 ? at - (at > 0) : std::min(at, text.size() - 1);
    to.push_back({one.code, text[source].begin, text[source].end});
    if (one.change <= 0) at += 1 + static_cast<size_t>(-one.change);
  }
  text = std::move(to);
}

uint32_t flags_of(uint32_t code) {
  static const Runs runs(kFlagsLengths, kFlagsValues);
  return runs.of(code);
}

void lower(Chars& text) {
  const auto small = [](uint32_t code) -> uint32_t {
    size_t low = 0, high = sizeof kLower / sizeof *kLower / 4;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const int32_t *const run = kLower + 4 * middle, wanted = static_cast<int32_t>(code);
      if (wanted < run[0]) {
        high = middle;
      } else if (wanted > run[1]) {
        low = middle + 1;
      } else {
        return (wanted - run[0]) % run[2] ? code : static_cast<uint32_t>(wanted + run[3]);
      }
    }
    return code;
  };
  Chars to;
  to.reserve(text.size());
  for (const Char& one : text) {
    to.push_back({one.code == 0x130 ? 'i' : small(one.code), one.begin, one.end});
    if (one.code == 0x130) to.push_back({0x307, one.begin, one.end});  // the only one that becomes two
  }
  text = std::move(to);
}

void decompose(Chars& text, bool compatible) {
  if (!is_plain(text)) rewrite(text, decomposed(text, compatible));
}

void compose(Chars& text, bool compatible) {
  if (is_plain(text)) return;
  std::vector<Change> done;
  constexpr size_t kNone = ~size_t{0};
  size_t starter = kNone;
  int last = -1;  // class of the last character that stayed behind the starter; -1: none did
  for (const Change& one : decomposed(text, compatible)) {
    const int own = class_of(one.code);
    if (starter != kNone && last < own) {
      if (const uint32_t both = composed(done[starter].code, one.code)) {
        done[starter] = {both, done[starter].change + one.change - 1};
        continue;
      }
    }
    if (own == 0) {
      starter = done.size();
      last = -1;
    } else {
      last = own;
    }
    done.push_back(one);
  }
  rewrite(text, done);
}

}  // namespace mvprune
