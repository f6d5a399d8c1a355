/// The keys that the settings name. They hold as long as the server runs.
package struct StaticKeys: Sendable, CustomStringConvertible {
    /// The keys that the README gives to everybody. They work on loopback only, see ``HostCheck``.
    package static let demoWriteKey = "demo"
    package static let demoReadKey = "demo-read"

    /// Nothing of a key: a log may describe whatever holds these.
    package var description: String { "StaticKeys" }

    let holders: [KeyDigest: KeyTable.Holder]
    let projects: [String: Int32]
    /// Whether one of the public keys is among them.
    let holdsDemoKeys: Bool

    /// - Parameters:
    ///   - writers: The project of each write key.
    ///   - readers: The project of each read key.
    ///   - projects: The number of each project by its name.
    package init(
        writers: [String: Int32] = [:], readers: [String: Int32] = [:], admin: String? = nil, projects: [String: Int32] = [:]
    ) {
        var holders: [KeyDigest: KeyTable.Holder] = [:]
        for (key, projectID) in writers {
            // Everybody knows the public key: pages from elsewhere could use it through their visitor's browser.
            holders[KeyDigest(key)] = .init(kind: .write, projectID: projectID, origins: key == Self.demoWriteKey ? .thisMachine : nil)
        }
        for (key, projectID) in readers { holders[KeyDigest(key)] = .init(kind: .read, projectID: projectID) }
        if let admin { holders[KeyDigest(admin)] = .init(kind: .admin) }
        self.holders = holders
        self.projects = projects
        holdsDemoKeys = writers[Self.demoWriteKey] != nil || readers[Self.demoReadKey] != nil
    }

    /// Why these settings do not fit to what the store holds; nil if they do. A key that is both would be what the settings say, whatever an
    /// admin sees and revokes.
    func contradiction(to contents: Registry.Contents) -> String? {
        for key in contents.keys {
            guard let holder = holders[key.digest], (holder.kind, holder.projectID) != (key.kind, key.projectID) else { continue }
            return """
                a \(holder.kind.rawValue) key of the settings is key \(key.id) of the store, a \(key.kind.rawValue) key\
                \(holder.kind == key.kind ? " of another project" : ""): take it out of the settings
                """
        }
        return nil
    }
}
