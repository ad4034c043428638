// Numbers as texts, whatever the locale.
#pragma once

#include <string>

namespace mvprune {

// The value of a number of JSON; false if it is beyond a double.
bool read_number(const std::string& text, double& value);

// The shortest decimal that is read as the same number. It must be finite.
std::string written_number(float value);

}  // namespace mvprune
