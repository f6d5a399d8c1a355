import Crypto
import HapaxModel

/// What each key may do.
///
/// Keys are compared by their SHA-256, so that the time a look-up takes says nothing about them, and are not kept.
package struct Keys: Sendable {
    package enum Holder: Hashable, Sendable {
        /// May send events of one project.
        case writer(projectID: Int32)
        /// May read what one project has sent.
        case reader(projectID: Int32)
        /// May read every project, and the state of the server.
        case admin
    }

    /// The keys that the README gives to everybody. They work on loopback only, see ``HostCheck``.
    package static let demoWriteKey = "demo"
    package static let demoReadKey = "demo-read"

    private let holders: [SHA256.Digest: Holder]
    private let projects: [String: Int32]
    /// Whether one of the public keys is among them.
    let holdsDemoKeys: Bool

    /// - Parameters:
    ///   - writers: The project of each write key.
    ///   - readers: The project of each read key.
    ///   - projects: The number of each project by its name, for the admin to choose from.
    package init(writers: [String: Int32], readers: [String: Int32] = [:], admin: String? = nil, projects: [String: Int32] = [:]) {
        var holders: [SHA256.Digest: Holder] = [:]
        for (key, projectID) in writers { holders[Self.digest(key)] = .writer(projectID: projectID) }
        for (key, projectID) in readers { holders[Self.digest(key)] = .reader(projectID: projectID) }
        if let admin { holders[Self.digest(admin)] = .admin }
        self.holders = holders
        self.projects = projects
        holdsDemoKeys = writers[Self.demoWriteKey] != nil || readers[Self.demoReadKey] != nil
    }

    /// The projects that an admin may choose from, sorted.
    var projectNames: [String] { projects.keys.sorted() }

    /// - Parameter authorization: The header field; the scheme `Bearer` in any case (RFC 6750 §2.1).
    /// - Returns: The project that events go to.
    func writer(_ authorization: String?) throws(RequestProblem) -> Int32 {
        guard case .writer(let projectID) = try holder(authorization) else {
            throw RequestProblem(.wrongKeyKind, detail: "events are sent with a write key")
        }
        return projectID
    }

    /// The holder of a key that may read; ``project(of:named:)`` gives the project.
    func reader(_ authorization: String?) throws(RequestProblem) -> Holder {
        let holder = try holder(authorization)
        if case .writer = holder {
            throw RequestProblem(.wrongKeyKind, detail: "reading needs a read key; this is a write key, which is in every app")
        }
        return holder
    }

    /// - Parameter name: The project's name: required with the admin key, refused with a read key.
    func project(of reader: Holder, named name: String?) throws(RequestProblem) -> Int32 {
        if case .reader(let projectID) = reader {
            guard name == nil else { throw QueryParameters.problem("project", "is for the admin key; a read key is for one project") }
            return projectID
        }
        guard let projectID = name.flatMap({ projects[$0] }) else {
            throw QueryParameters.problem("project", "must name a project: \(projectNames.joined(separator: ", "))")
        }
        return projectID
    }

    func checkAdmin(_ authorization: String?) throws(RequestProblem) {
        guard case .admin = try holder(authorization) else {
            throw RequestProblem(.wrongKeyKind, detail: "this needs the admin key")
        }
    }

    private func holder(_ authorization: String?) throws(RequestProblem) -> Holder {
        let parts = (authorization ?? "").split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer",
            let holder = holders[Self.digest(String(parts[1].drop { $0 == " " }))]
        else { throw RequestProblem(.unknownKey, detail: "the header Authorization: Bearer must carry a known key") }
        return holder
    }

    private static func digest(_ key: String) -> SHA256.Digest {
        var (key, hash) = (key, SHA256())
        key.withUTF8 { hash.update(bufferPointer: UnsafeRawBufferPointer($0)) }
        return hash.finalize()
    }
}
