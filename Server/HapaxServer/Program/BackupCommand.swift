import ArgumentParser
import Foundation
import HapaxModel

struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Copies the embedded store to a file, or notes that PostgreSQL's own backup is done.",
        discussion: """
            The copy is of one moment, checked, and safe while the server runs. PostgreSQL is backed up by its own tools; `backup --done` \
            after them lets check and metrics know when that was (docs/operations.md). Exit codes: 0 done, 1 failed (no file was made), \
            64 wrong usage.
            """)
    @OptionGroup var settings: StoreFlags
    @Argument(help: "The file to make; it must not exist.") var file: String?
    @Flag(help: "Note that a backup of PostgreSQL has been made.") var done = false

    func validate() throws {
        guard (file != nil) != done else { throw ValidationError("name a file, or say --done.") }
    }

    /// - Returns: What has been done, for people.
    func run(_ configuration: ServerConfiguration, note: @escaping @Sendable (String) -> Void) async throws -> String {
        switch (configuration.store, file) {
        case (.sqlite(let path), let file?):
            var reported = ContinuousClock.now
            let bytes = try SQLiteBackup.run(from: path, to: file) { part in
                guard reported + .seconds(1) < .now else { return }
                reported = .now
                note("\(Int(part * 100)) %…")
            }
            return "\(file): \(bytes) bytes, checked"
        case (.postgres(let uri), nil):
            let admin = configuration.postgres.admin ?? uri
            let database = PostgresSQLStore(uri: uri, admin: admin, breaker: Locked(ConnectionBreaker()), reported: Locked(0))
            let result: Result<Void, StoreError>
            do throws(StoreError) {
                _ = try await database.change(["INSERT INTO backups DEFAULT VALUES"], as: .owner)
                result = .success(())
            } catch { result = .failure(error) }
            await database.close()
            try result.get()
            return "Noted: a backup has been made."
        case (.postgres, _):
            throw SQLiteBackup.Problem(
                description:
                    "PostgreSQL is backed up by its own tools: pg_dump --format=custom --file=FILE DATABASE, then hapax-server backup --done"
            )
        case (.sqlite, nil):
            throw SQLiteBackup.Problem(description: "--done is for PostgreSQL; name the file to make")
        }
    }
}
