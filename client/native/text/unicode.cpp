// Normal forms as UAX #15 defines them. A character that becomes several gives all of them its source; of those that
// become one, the first one's source stays. Where characters change places, the sources do not.
#include "unicode.h"

#include <algorithm>
#include <cstddef>

#include "../base/sorting.h"
#include "runs.h"
#include "unicode_data.h"

namespace mvprune {
namespace {

constexpr uint32_t kHangul = 0xAC00, kHangulCount = 11172, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;

int class_of(uint32_t code) {
  if (code < 0x300) return 0;
  static const Runs runs(kCombining);
  return static_cast<int>(runs.of(code));
}

// What characters become. They are in order, and each has the parts from its start to the next one's.
class Decompositions {
 public:
  explicit Decompositions(const uint8_t* table) {
    Packed packed(table);
    codes_.resize(packed.next());
    starts_.resize(codes_.size() + 1);
    uint32_t code = 0, longest = 0;
    for (uint32_t& one : codes_) one = code += packed.next();
    for (size_t i = 0; i < codes_.size(); ++i) {
      const uint32_t length = packed.next();
      starts_[i + 1] = static_cast<uint16_t>(starts_[i] + length);
      longest = std::max(longest, length);
    }
    parts_.resize(starts_.back());
    for (uint32_t place = 0; place < longest; ++place) {
      int32_t part = 0;
      for (size_t i = 0; i < codes_.size(); ++i) {
        const size_t at = starts_[i] + place;
        if (at < starts_[i + 1]) parts_[at] = static_cast<uint32_t>(part += packed.next_signed());
      }
    }
  }

  template <typename Emit>
  bool look_up(uint32_t code, Emit emit) const {
    const auto found = std::lower_bound(codes_.begin(), codes_.end(), code);
    if (found == codes_.end() || *found != code) return false;
    const size_t place = static_cast<size_t>(found - codes_.begin());
    for (size_t i = starts_[place]; i < starts_[place + 1]; ++i) emit(parts_[i]);
    return true;
  }

 private:
  std::vector<uint32_t> codes_, parts_;
  std::vector<uint16_t> starts_;
};

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
  if (compatible) {
    static const Decompositions others(kCompatible);
    if (others.look_up(code, emit)) return;
  }
  static const Decompositions all(kCanonical);
  if (!all.look_up(code, emit)) emit(code);
}

// Pairs that compose, in order.
struct Pair {
  uint32_t first, second, composed;

  bool operator<(const Pair& other) const { return first < other.first || (first == other.first && second < other.second); }
};

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> pairs = [] {
    Packed packed(kComposed);
    std::vector<Pair> all(packed.next());
    uint32_t first = 0, composed = 0;
    for (Pair& pair : all) pair.first = first += packed.next();
    for (Pair& pair : all) pair.second = packed.next();
    for (Pair& pair : all) pair.composed = composed += static_cast<uint32_t>(packed.next_signed());
    return all;
  }();
  return pairs;
}

// 0: the two do not compose.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first - kLead < 19 && second - kVowel < 21) return kHangul + ((first - kLead) * 21 + second - kVowel) * 28;
  if (first - kHangul < kHangulCount && (first - kHangul) % 28 == 0 && second - kTail - 1 < 27) {
    return first + second - kTail;
  }
  const Pair wanted{first, second, 0};
  const auto found = std::lower_bound(pairs().begin(), pairs().end(), wanted);
  return found == pairs().end() || wanted < *found ? 0 : found->composed;
}

// Capital letters with one distance to the small ones: all from the first to the last, or every second one.
struct Capitals {
  uint32_t first, last, step, distance;
};

const std::vector<Capitals>& capitals() {
  static const std::vector<Capitals> runs = [] {
    Packed packed(kLower);
    std::vector<Capitals> all(packed.next());
    for (Capitals& run : all) run.first = packed.next();
    uint32_t last = 0;
    for (Capitals& run : all) {
      const uint32_t count = packed.next();
      run.first += last;
      run.step = 1 + count % 2;
      run.last = last = run.first + count / 2 * run.step;
    }
    for (Capitals& run : all) run.distance = static_cast<uint32_t>(packed.next_signed());
    return all;
  }();
  return runs;
}

uint32_t small(uint32_t code) {
  const auto past = [](uint32_t wanted, const Capitals& run) { return wanted < run.first; };
  const auto after = std::upper_bound(capitals().begin(), capitals().end(), code, past);
  if (after == capitals().begin()) return code;
  const Capitals& run = after[-1];
  return code > run.last || (code - run.first) % run.step ? code : code + run.distance;
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
    sort_stably(changes, [](const Change& a, const Change& b) { return class_of(a.code) < class_of(b.code); }, ordered);
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
  static const Runs runs(kFlags);
  return runs.of(code);
}

void lower(Chars& text) {
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
