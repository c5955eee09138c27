// Runs the scenario named by the argument, or all of them; --list lists them.
#include <cstring>

#include "check.hpp"

int main(int argc, char** argv) {
    int ran = 0;
    for (const check::scenario& scenario : check::scenarios()) {
        if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
            std::puts(scenario.name);
        } else if (argc == 1 || std::strcmp(argv[1], scenario.name) == 0) {
#if KVSTORE_EXCEPTIONS
            try {
                scenario.run();
            } catch (const std::exception& e) {
                check::fail(scenario.name, 0, e.what());
            }
#else
            scenario.run();
#endif
        } else {
            continue;
        }
        ran++;
    }
    return ran > 0 ? 0 : 2;
}
