import HapaxModel

/// What the ``FaultProxy`` does with one request.
package enum Fault: Sendable {
    case pass
    /// The server answers completely, so it has committed; the client's connection ends without a byte of the answer.
    case dropAnswer
    /// The server gets the first bytes of the request, then both connections end. Nothing happens if the request is not longer.
    case cutRequest(after: Int)
    /// The server answers completely; the client gets the first bytes of the answer, then its connection ends.
    case cutAnswer(after: Int)
    /// The server answers completely; the client gets the answer once the gate is open.
    case delayAnswer(until: Gate)
    /// The server gets the request and then as many more copies, each on a connection of its own, one after the other or at once.
    case replay(copies: Int, atOnce: Bool = false, delivering: ReplayedAnswer = .first)
    /// The client's connection is reset; the server sees nothing.
    case resetBeforeRequest
    /// The server answers completely, then the client's connection is reset.
    case resetAfterAnswer

    /// Which answer the client gets. At once, the order is that of the copies, not of time.
    package enum ReplayedAnswer: Sendable {
        case first
        case last
    }

    /// The name that faults are counted by.
    package enum Kind: String, Sendable, CaseIterable {
        case pass, dropAnswer, cutRequest, cutAnswer, delayAnswer, replay, resetBeforeRequest, resetAfterAnswer
    }

    package var kind: Kind {
        switch self {
        case .pass: .pass
        case .dropAnswer: .dropAnswer
        case .cutRequest: .cutRequest
        case .cutAnswer: .cutAnswer
        case .delayAnswer: .delayAnswer
        case .replay: .replay
        case .resetBeforeRequest: .resetBeforeRequest
        case .resetAfterAnswer: .resetAfterAnswer
        }
    }
}

/// Decides the fault for each request, in the order in which they are complete. It is called under a lock and must not block.
package struct FaultPlan: Sendable {
    let next: @Sendable (FaultProxy.Request) -> Fault

    package init(_ next: @escaping @Sendable (FaultProxy.Request) -> Fault) {
        self.next = next
    }

    package static let pass = FaultPlan { _ in .pass }

    /// One fault after the other, then none.
    package static func script(_ faults: [Fault]) -> FaultPlan {
        let rest = Locked(faults[...])
        return FaultPlan { _ in rest.withLock { $0.popFirst() } ?? .pass }
    }
}
