// Plain driver of a fuzz target: replays a corpus folder, then seeded mutations of its inputs.
//
// Usage: TARGET-replay FOLDER [MUTATIONS]    (per input; 200 by default)
// A failure prints the input's name, the mutation's number and the bytes in hex.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace {

using Input = std::vector<uint8_t>;

// The input at work, for the message of a failure.
std::string current_name;
int current_mutation = 0;
Input current;

[[noreturn]] void report_and_abort() {
  fmt::print(stderr, "{} mutation {}: {}\n{:02x}\n", current_name, current_mutation,
             uroce::tests::broken_rule, fmt::join(current, ""));
  std::fflush(stderr);
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

void run(const Input& input) {
  current = input;
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

Input mutate(Input input, const std::vector<Input>& corpus, std::mt19937& random) {
  const size_t rounds = 1 + random() % 4;
  for (size_t round = 0; round < rounds; ++round) {
    const size_t at = input.empty() ? 0 : random() % input.size();
    switch (random() % 6) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<uint8_t>(1u << random() % 8);
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.insert(input.begin() + static_cast<ptrdiff_t>(at), random() % 8,
                     static_cast<uint8_t>(random()));
        break;
      case 4: {  // splice another input's tail
        const Input& other = corpus[random() % corpus.size()];
        const size_t from = other.empty() ? 0 : random() % other.size();
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(from), other.end());
        break;
      }
      case 5:
        if (!input.empty()) {
          const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
          std::fill_n(input.begin() + static_cast<ptrdiff_t>(at),
                      std::min<size_t>(1 + random() % 8, input.size() - at),
                      edges[random() % std::size(edges)]);
        }
        break;
    }
  }
  if (input.size() > 1 << 16) input.resize(1 << 16);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} FOLDER [MUTATIONS]\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, [](int) { report_and_abort(); });
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 200;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    fmt::print(stderr, "{}: no inputs\n", argv[1]);
    return 2;
  }
  for (size_t i = 0; i < corpus.size(); ++i) {
    current_name = files[i].filename().string();
    std::mt19937 random(static_cast<uint32_t>(i));
    for (current_mutation = 0; current_mutation <= mutations; ++current_mutation) {
      run(current_mutation == 0 ? corpus[i] : mutate(corpus[i], corpus, random));
    }
  }
  fmt::print("{} inputs, {} mutations each\n", corpus.size(), mutations);
  return 0;
}
