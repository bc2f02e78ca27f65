// What the profiler found, as JSON.
#pragma once

#include "launch_counters.h"
#include "warp_samples.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace orbit {

inline void add_text(std::string& json, const std::string& text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) json += c;
  }
  json += '"';
}

inline std::string of_plan(const Plan& plan) {
  std::string json = "{\"chip\":";
  add_text(json, plan.chip);
  json += ",\"passes\":" + std::to_string(plan.passes) + ",\"names\":[";
  for (size_t i = 0; i < plan.names.size(); ++i) {
    if (i > 0) json += ',';
    add_text(json, plan.names[i]);
  }
  return json + "]}";
}

// Without what is not finite.
inline std::string of_named(const std::vector<const char*>& names, const std::vector<double>& values) {
  std::string json = "{";
  char number[32];
  for (size_t i = 0; i < names.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    if (json.size() > 1) json += ',';
    add_text(json, names[i]);
    snprintf(number, sizeof number, ":%.17g", values[i]);
    json += number;
  }
  return json + "}";
}

// null for what is not finite.
inline std::string of_values(const std::vector<std::vector<double>>& ranges) {
  std::string json = "[";
  char number[32];
  for (const auto& values : ranges) {
    json += json.size() > 1 ? ",[" : "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) json += ',';
      snprintf(number, sizeof number, "%.17g", values[i]);
      json += std::isfinite(values[i]) ? number : "null";
    }
    json += ']';
  }
  return json + "]";
}

inline std::string of_samples(const Samples::Counts& counts, uint64_t dropped) {
  std::string json = "{\"dropped\":" + std::to_string(dropped) + ",\"places\":[";
  bool first = true;
  for (const auto& [place, reasons] : counts) {
    json += first ? "[" : ",[";
    first = false;
    add_text(json, place.first);
    json += "," + std::to_string(place.second) + ",{";
    bool only = true;
    for (const auto& [reason, samples] : reasons) {
      if (!only) json += ',';
      only = false;
      add_text(json, reason);
      json += ":" + std::to_string(samples);
    }
    json += "}]";
  }
  return json + "]}";
}

}  // namespace orbit
