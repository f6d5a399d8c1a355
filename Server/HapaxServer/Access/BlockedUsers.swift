import HapaxModel

/// Users of one project whose events are refused. Of each an HMAC is kept, under a key that no other project has: the list names nobody, and cannot
/// be compared with another one.
package struct BlockedUsers: Sendable {
    private let key: [UInt8]
    private var digests: Set<SHA256Digest> = []

    /// - Parameter key: The project's, as ``Registry`` keeps it.
    init(key: String) { self.key = Array(key.utf8) }

    var count: Int { digests.count }

    /// - Parameter hex: As ``hex(_:)`` gives it.
    mutating func insert(hex: String) {
        guard let digest = SHA256Digest(hex: hex) else { return }
        digests.insert(digest)
    }

    /// - Parameter user: A distinct id, unescaped.
    func contains(_ user: UnsafeBufferPointer<UInt8>) -> Bool {
        digests.contains(SHA256Digest(of: UnsafeRawBufferPointer(user), under: key))
    }

    /// What is kept of a user.
    func hex(_ user: String) -> String {
        Array(user.utf8).withUnsafeBytes { SHA256Digest(of: $0, under: key).hex }
    }

    /// A key for a project that has none: 256 bits of randomness.
    static func makeKey() -> String {
        var random = SystemRandomNumberGenerator()
        return (0..<4).map { _ in String(UInt64.random(in: 0 ... .max, using: &random), radix: 16) }.joined(separator: "-")
    }
}

/// The table `blocked_users`: the hash of each user whom a project refuses (`digest`, under `projects.user_key`).
extension Registry {
    /// By projects; nobody of a project that is missing.
    func blockedUsers() async throws(StoreError) -> [Int32: BlockedUsers] {
        var blocked: [Int32: BlockedUsers] = [:]
        for row in try await database.ask(
            "SELECT b.project_id, p.user_key, b.digest FROM blocked_users b JOIN projects p ON p.project_id = b.project_id", as: .own)
        {
            let id = Int32(clamping: try row.number(0))
            // Who is blocked must not come in since it cannot be read who that is.
            guard let key = row[1], let digest = row[2] else { throw .unavailable("the blocked users cannot be read") }
            blocked[id, default: BlockedUsers(key: key)].insert(hex: digest)
        }
        return blocked
    }

    func block(_ user: String, _ projectID: Int32) async throws(StoreError) {
        let key = try await database.change(
            [
                "UPDATE projects SET user_key = coalesce(user_key, \(BlockedUsers.makeKey())) WHERE project_id = \(projectID) RETURNING user_key"
            ], as: .owner)
        guard let key = key.first?[0] else { throw .unavailable("the project is not there any more") }
        _ = try await database.change(
            [
                """
                INSERT INTO blocked_users (project_id, digest) VALUES (\(projectID), \(BlockedUsers(key: key).hex(user))) ON CONFLICT DO NOTHING
                """
            ], as: .owner)
    }

    /// - Throws: ``Registry/notBlocked``.
    func unblock(_ user: String, _ projectID: Int32) async throws {
        // Without a key nobody has been blocked.
        let key = try await database.ask("SELECT user_key FROM projects WHERE project_id = \(projectID)", as: .own).first?[0] ?? ""
        let row: StoreSQL = "FROM blocked_users WHERE project_id = \(projectID) AND digest = \(BlockedUsers(key: key).hex(user))"
        guard try await !database.ask("SELECT 1 \(row)", as: .own).isEmpty else { throw Self.notBlocked }
        let rows = try await database.change(["DELETE \(row) RETURNING 1"], as: .owner)
        guard !rows.isEmpty else { throw Self.notBlocked }
    }

    static let notBlocked = Problem.notFound("this user is not blocked")
}
