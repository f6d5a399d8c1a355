import Foundation
import HapaxModel

/// The tables `projects`, `keys`, `derived_ids` and `blocked_users`, in a file each. Every server reads what it needs of them every two seconds, so that
/// a change needs no restart; admins change them.
package struct Registry: Sendable {
    let database: any SQLStore
    /// Projects whose time zones the settings of this program name.
    var zonesInSettings: Set<String> = []
    /// The keys that the settings of this program name.
    var keysInSettings: Set<KeyDigest> = []

    package struct Contents: Sendable {
        /// By name.
        package var projects: [Project] = []
        /// In the order in which they were made.
        package var keys: [Key] = []
        /// By projects; nobody of a project that is missing.
        package var blocked: [Int32: BlockedUsers] = [:]

        func project(named name: String) throws(Problem) -> Project {
            guard let project = projects.first(where: { $0.name == name }) else {
                let names = projects.map(\.name).joined(separator: ", ")
                throw .notFound("there is no project of that name; there are: \(names.isEmpty ? "none" : names)")
            }
            return project
        }

        /// For people.
        func name(ofKey id: Int32?) -> String {
            guard let id else { return "a key of the settings" }
            let name = keys.first { $0.id == id }?.name ?? ""
            return "key \(id)\(name.isEmpty ? "" : " (\(name))")"
        }

        func key(_ id: Int32) throws(Problem) -> Key {
            guard let key = keys.first(where: { $0.id == id }) else { throw .notFound("there is no key with that number") }
            return key
        }
    }

    /// Why something was not changed. The texts hold no key.
    package enum Problem: Error, Hashable {
        case notFound(String)
        case exists(String)
        /// The key is not for that.
        case notAllowed(String)
        /// The value of a parameter cannot be used.
        case invalid(parameter: String, String)

        var text: String {
            switch self {
            case .notFound(let text), .exists(let text), .notAllowed(let text): text
            case .invalid(let parameter, let text): "\(parameter) \(text)"
            }
        }
    }

    static let needsAll = Problem.notAllowed("this concerns all projects, and the admin key is for one")

    // MARK: - Reading

    package func contents() async throws(StoreError) -> Contents {
        Contents(projects: try await projects(), keys: try await keys(), blocked: try await blockedUsers())
    }

    /// Names are shown in terminals and lists: what cannot be seen, or turns what stands next to it, is in none.
    static func checkName(_ name: String) throws {
        let hidden: [Unicode.GeneralCategory] = [.control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned]
        guard name.utf8.count <= 64, name.first?.isWhitespace != true, name.last?.isWhitespace != true,
            !name.unicodeScalars.contains(where: { hidden.contains($0.properties.generalCategory) })
        else { throw Problem.invalid(parameter: "name", "must be a text of at most 64 bytes that can be seen, without blanks around it") }
        // Names stand in lists, answers and backups.
        guard name.firstMatch(of: /hapax_[wsbra]_[0-9A-Za-z]{8}/) == nil else { throw nameHoldsKey }
    }

    static let nameHoldsKey = Problem.invalid(parameter: "name", "holds a key, which must be written down nowhere")

}
