extension StoreError {
    /// What a failure of PostgreSQL means (https://www.postgresql.org/docs/current/errcodes-appendix.html).
    ///
    /// Only data exceptions (class 22) and exceeded limits (54000, 54001) may refuse an event. Every other failure is the store's, and it is not
    /// known whether the transaction was committed.
    package init(_ error: PostgresError) {
        let state = error.sqlState ?? ""
        switch (error.kind, state) {
        case (.statement, "40P01"), (.statement, "40001"), (.statement, "23514"): self = .collided
        case (_, "57014"): self = .tooHeavy
        case (.statement, "55P03"): self = .unavailable("another session holds a lock that is needed here (SQLSTATE 55P03)")
        case (.statement, "54000"), (.statement, "54001"): self = .dataRefused(state)
        case (.statement, "42501"):
            self = .unusable("the role may not do what is needed here (SQLSTATE 42501); see store-admin in the help")
        case (.statement, _) where state.hasPrefix("22"): self = .dataRefused(state)
        default: self = .unavailable(state.isEmpty ? error.summary : "\(error.summary) (SQLSTATE \(state))")
        }
    }
}
