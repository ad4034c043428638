#include "clusters.h"

#include "runs.h"
#include "unicode_data.h"

namespace mvprune {
namespace {

// As the table numbers them: scripts/unicode_clusters.py. From kExtend on, they belong to the character before them.
enum Kind { kOther, kBreak, kPrepend, kPicture, kConsonant, kExtend, kSpacing, kLinker, kJoiner, kNonJoiner };

Kind kind_of(uint32_t code) {
  static const Runs runs(kClusters);
  return static_cast<Kind>(runs.of(code));
}

// Syllables of Hangul: a leading consonant, a vowel, a trailing consonant, or two or three of them in one character.
enum class Hangul { kNone, kLead, kVowel, kTail, kLeadVowel, kWhole };

Hangul hangul(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  if (within(0x1100, 0x115F) || within(0xA960, 0xA97C)) return Hangul::kLead;
  if (within(0x1160, 0x11A7) || within(0xD7B0, 0xD7C6)) return Hangul::kVowel;
  if (within(0x11A8, 0x11FF) || within(0xD7CB, 0xD7FB)) return Hangul::kTail;
  if (within(0xAC00, 0xD7A3)) return (code - 0xAC00) % 28 ? Hangul::kWhole : Hangul::kLeadVowel;
  return Hangul::kNone;
}

bool one_syllable(uint32_t before, uint32_t code) {
  const Hangul left = hangul(before), right = hangul(code);
  if (right == Hangul::kTail) return left != Hangul::kNone && left != Hangul::kLead;
  if (right == Hangul::kVowel) return left == Hangul::kLead || left == Hangul::kVowel || left == Hangul::kLeadVowel;
  return right != Hangul::kNone && left == Hangul::kLead;
}

}  // namespace

size_t cluster_end(const Chars& text, size_t at) {
  if (text[at].code == '\r' && at + 1 < text.size() && text[at + 1].code == '\n') return at + 2;
  Kind before = kind_of(text[at].code);
  if (before == kBreak) return at + 1;
  // What a joiner may follow: a picture and its extensions, or a consonant and its linkers.
  bool picture = before == kPicture, joined = false;
  bool consonant = before == kConsonant, linked = false;
  for (++at; at < text.size(); ++at) {
    const Kind kind = kind_of(text[at].code);
    if (kind == kBreak) break;
    const bool extends = kind >= kExtend;
    const bool same = extends || before == kPrepend || (joined && kind == kPicture) ||
                      (linked && kind == kConsonant) || one_syllable(text[at - 1].code, text[at].code);
    if (!same) break;
    joined = picture && kind == kJoiner;
    picture = kind == kPicture ||
              (picture && (kind == kExtend || kind == kLinker || kind == kNonJoiner));
    linked = consonant && (kind == kLinker || (linked && (kind == kExtend || kind == kJoiner)));
    consonant = kind == kConsonant ||
                (consonant && (kind == kExtend || kind == kLinker || kind == kJoiner));
    before = kind;
  }
  return at;
}

}  // namespace mvprune
