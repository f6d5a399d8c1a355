import HapaxModel

/// Closes what is missing: somebody has looked, and knows that it does not come under its number any more.
package struct Losses: Sendable {
    let store: any EventStore

    private static let reason = "accepted_loss"

    package init(store: any EventStore) { self.store = store }

    /// - Parameter install: nil for all of the project.
    /// - Returns: How many numbers are missing, or were until now.
    /// - Throws: ``Registry/Problem``, ``StoreError``.
    package func accept(project: String, install: EventID?, isDryRun: Bool) async throws -> Int64 {
        let projectID = try await Registry(database: store.settings).contents().project(named: project).id
        let reader = TrustReader(database: store.reports, projectID: projectID, deadline: .now + .seconds(60))
        var count: Int64 = 0
        var known: Set<EventID> = []
        while true {
            let installs = try await reader.installs(.missing, limit: 1_000, since: 0).filter {
                !known.contains($0.id) && (install == nil || install == $0.id)
            }
            if installs.isEmpty { return count }
            for install in installs {
                known.insert(install.id)
                count += install.book.figures.missing
                if !isDryRun { try await close(install, projectID) }
            }
        }
    }

    private func close(_ install: Trust.Install, _ projectID: Int32) async throws {
        guard let report = InstallReport(.init(installID: install.id, created: 0), projectID: projectID) else { return }
        var group = StoreGroup(records: [RowKey](), in: [], reports: [report])
        // What comes meanwhile is stored, whatever was accepted.
        group.entries = { _ in [InstallBook.Entry(report: report, ended: [Self.reason: install.book.missing])] }
        _ = try await store.commit(group, writer: 0)
    }
}
