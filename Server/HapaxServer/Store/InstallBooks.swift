import HapaxModel

/// What one install says about itself in its envelopes. The store keeps the greatest of each number.
package struct InstallBooks: Sendable, Equatable {
    package var projectID: Int32
    package var installID: EventID
    /// The highest sequence given.
    package var created: Int64
    /// The depth of its queue.
    package var waiting: Int64
    /// Events dropped since the install began, by reason.
    package var dropped: [String: Int64]

    package init(projectID: Int32, installID: EventID, created: Int64, waiting: Int64, dropped: [String: Int64]) {
        self.projectID = projectID
        self.installID = installID
        self.created = created
        self.waiting = waiting
        self.dropped = dropped
    }

    /// What an envelope says of the install that sends, and of those that are gone and whose counts that one has taken over.
    package static func said(by envelope: EventBatch.Envelope, projectID: Int32) -> [InstallBooks] {
        var books = envelope.takenOver.map { install, dropped in
            InstallBooks(projectID: projectID, installID: install, created: 0, waiting: 0, dropped: dropped)
        }
        if let installID = envelope.installID, envelope.created != nil || envelope.waiting != nil || !envelope.dropped.isEmpty {
            books.append(
                InstallBooks(
                    projectID: projectID, installID: installID, created: envelope.created ?? 0, waiting: envelope.waiting ?? 0,
                    dropped: envelope.dropped))
        }
        return books
    }

    package mutating func merge(_ other: InstallBooks) {
        created = max(created, other.created)
        waiting = max(waiting, other.waiting)
        dropped.merge(other.dropped, uniquingKeysWith: max)
    }

    /// Merged by install, in the order in which every group writes them.
    package static func merged(_ books: [InstallBooks]) -> [InstallBooks] {
        var byInstall: [EventKey: InstallBooks] = [:]
        for book in books {
            byInstall[book.key, default: book].merge(book)
        }
        return byInstall.sorted { $0.key < $1.key }.map(\.value)
    }

    private var key: EventKey { EventKey(id: installID, projectID: projectID) }
}
