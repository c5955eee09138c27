/// @file
/// Recovery of a damaged file into a new store.
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

/// Result of recover(): the number of saved rows, and the number of losses.
struct recover_report {
    /// Number of rows in the new store.
    std::uint64_t saved;
    /// Number of losses found: rows, pages and tables; 0 if everything was saved.
    std::uint64_t lost;
};

namespace detail {

template <class Report>
struct recovery {
    Report& report;
    std::exception_ptr thrown;

    // Called by C: no exception may leave it.
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

/// Saves every readable row of a damaged file into a new store.
///
/// No row is invented; kvstore_recover has the details.
/// @param path Damaged file. It is never written, and must not be open elsewhere.
/// @param new_path Path of the new store, which must not exist.
/// @param report Called as `report(text, done, total)`: with a line of text for each loss, and at
///   intervals with nullptr as text. `done` and `total` are numbers of pages. If it throws, the
///   recovery is cancelled, no file is left, and the exception is passed on.
/// @throws error errc::cantopen (`path` cannot be read), errc::notadb (the file contains nothing of
///   a store), errc::error (`new_path` exists), errc::full, errc::ioerr, errc::nomem, errc::busy.
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
        throw detail::last_error(code);
    }
    return recover_report{static_cast<std::uint64_t>(saved), static_cast<std::uint64_t>(lost)};
}

/// Like recover(path, new_path, report), but without progress reports.
inline recover_report recover(const std::string& path, const std::string& new_path) {
    return recover(path, new_path, [](const char*, std::int64_t, std::int64_t) {});
}

} // namespace kvstore

#endif
