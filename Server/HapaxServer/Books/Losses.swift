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
        let projectID = try await Registry(database: store.sql).contents().project(named: project).id
        // Each question has its time, however long closing takes in between.
        func reader() -> TrustReader {
            TrustReader(database: store.sql, projectID: projectID, purpose: .search(within: ServerLimits.adminWork))
        }
        if let install {
            guard let install = try await reader().install(install) else {
                throw Registry.Problem.notFound("no install of this project has that id; hapax reconcile names those with losses")
            }
            return try await accept([install], projectID, isDryRun: isDryRun)
        }
        var (count, last): (Int64, EventID?) = (0, nil)
        repeat {
            let installs = try await reader().losses(after: last, limit: 1_000)
            count += try await accept(installs, projectID, isDryRun: isDryRun)
            last = installs.last?.id
        } while last != nil
        return count
    }

    private func accept(_ installs: [Trust.Install], _ projectID: Int32, isDryRun: Bool) async throws -> Int64 {
        if !isDryRun { for install in installs where install.book.figures.missing > 0 { try await close(install, projectID) } }
        return installs.reduce(0) { $0 + $1.book.figures.missing }
    }

    private func close(_ install: Trust.Install, _ projectID: Int32) async throws {
        guard let report = InstallReport(.init(installID: install.id, created: 0), projectID: projectID) else { return }
        var group = StoreGroup(records: [RowKey](), in: [], reports: [report])
        // What comes meanwhile is stored, whatever was accepted.
        group.entries = { _ in [InstallBook.Entry(report: report, ended: [Self.reason: install.book.missing])] }
        _ = try await store.commit(group, writer: 0)
    }
}
