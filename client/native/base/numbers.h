// Numbers as texts, whatever the locale, and numbers from nowhere.
#pragma once

#include <cstdint>
#include <string>

namespace mvprune {

// The value of a number of JSON; false if it is beyond a double.
bool read_number(const std::string& text, double& value);

// The shortest decimal that is read as the same number. It must be finite.
std::string written_number(float value);

// Another number each time, to begin a row of random numbers with; not for secrets.
uint64_t fresh_number();

}  // namespace mvprune
