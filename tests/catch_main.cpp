// The main function of the Catch2 tests.
#define CATCH_CONFIG_MAIN
#include "tests/catch.hpp"
