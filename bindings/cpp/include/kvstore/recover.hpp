/// @file
/// What can be read of a damaged file, saved into a new store.
#ifndef KVSTORE_RECOVER_HPP
#define KVSTORE_RECOVER_HPP

#include <kvstore.h>

#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>

#include "bytes.hpp"
#include "error.hpp"

namespace kvstore {

/// What recover has saved.
struct recover_report {
    /// Rows in the new store.
    std::uint64_t saved;
    /// Everything that was found to be lost: rows, pages, tables. 0: nothing is.
    std::uint64_t lost;
};

namespace detail {

template <class Report>
struct recovery {
    Report& report;
    std::exception_ptr thrown;

    // Called by C, which no exception may cross.
    static int call(void* context, const char* text, std::int64_t done, std::int64_t total) noexcept {
        auto& self = *static_cast<recovery*>(context);
        try {
            self.report(text, done, total);
            return 0;
        } catch (...) {
            self.thrown = std::current_exception();
            return 1;
        }
    }
};

} // namespace detail

/// Saves every row that can be read of the file `path`, which may be damaged and is never written, into a new store
/// at `new_path`, which must not exist. No row is invented; kvstore_recover says more. Nobody may have the file open.
///
/// `report(text, done, total)` is called with a line about each thing that is lost, and now and then with nullptr as
/// `text`; `done` and `total` are numbers of pages. If it throws, the recovery is stopped, no file is left, and the
/// exception thrown on.
/// @throws error errc::cantopen if `path` cannot be read, errc::notadb if nothing in it is of a store, errc::error if
/// `new_path` exists; errc::full and what else writing throws.
template <class Report>
recover_report recover(const std::string& path, const std::string& new_path, Report&& report) {
    detail::recovery<std::remove_reference_t<Report>> watching{report, nullptr};
    std::int64_t saved = 0;
    std::int64_t lost = 0;
    const int code = kvstore_recover(detail::c_string(path, "path"), detail::c_string(new_path, "path"),
                                     &decltype(watching)::call, static_cast<void*>(&watching), &saved, &lost);
    if (watching.thrown) {
        std::rethrow_exception(watching.thrown);
    }
    if (code != KVSTORE_OK) {
        throw error(static_cast<errc>(code), kvstore_errmsg(nullptr));
    }
    return recover_report{static_cast<std::uint64_t>(saved), static_cast<std::uint64_t>(lost)};
}

/// The same without a report.
inline recover_report recover(const std::string& path, const std::string& new_path) {
    return recover(path, new_path, [](const char*, std::int64_t, std::int64_t) {});
}

} // namespace kvstore

#endif
