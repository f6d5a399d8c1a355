import HapaxModel

/// Whether a request may be made at this moment, whoever wants it: the app's life decides (R31, R33), and for what nobody asked for
/// its settings and the network, too (R18, R23, R26).
///
/// A process without an adapter, a service or a command, is never in the background: nothing is held up there.
struct RequestGate: Sendable {
    let lifecycle: AppLifecycle
    /// Whether there are uploads that nobody asked for, and over this network.
    let policyAllows: @Sendable () -> Bool

    /// - Parameter isManual: Whether somebody asked; else a policy did.
    func permission(isManual: Bool) -> RequestPermission {
        let (machine, record) = lifecycle.snapshot()
        guard isManual || policyAllows() else { return .denied }
        switch machine.uploads {
        case .always: return .granted(timeout: nil)
        case .onlyOnRequest: return isManual ? .granted(timeout: nil) : .denied
        case .underAssertion:
            let isAsserted = machine.holdsAssertion && record.mayFlush || isManual && !record.requestedAssertions.isEmpty
            guard isAsserted, let adapter = record.adapter else { return .denied }
            // Asked for without a lock held: it is somebody else's code.
            return BackgroundBudget.timeout(remaining: adapter.remainingBackgroundTime).map { .granted(timeout: $0) } ?? .denied
        }
    }
}
