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
        // Of an app that has not been heard of nobody knows whether it is in the background.
        guard isManual || !record.isAwaited && policyAllows() else { return .denied }
        switch machine.uploads {
        case .always: return .granted(timeout: nil)
        case .onlyOnRequest: return isManual ? .granted(timeout: nil) : .denied
        case .underAssertion:
            let own = isManual ? !record.requestedAssertions.isEmpty : record.policyAssertion != nil
            let isAsserted = machine.holdsAssertion && record.mayFlush || own
            guard isAsserted, let adapter = record.adapter else { return .denied }
            // Asked for without a lock held: it is somebody else's code.
            return BackgroundBudget.timeout(remaining: adapter.remainingBackgroundTime).map { .granted(timeout: $0) } ?? .denied
        }
    }

    /// A policy's pass begins. In the background, where an app with a background mode goes on tracking, that takes an assertion of its own; of one
    /// that is there for entering the background it makes use.
    ///
    /// - Returns: What ends it.
    func beginPass() -> @Sendable () -> Void {
        let (machine, record) = lifecycle.snapshot()
        guard machine.uploads == .underAssertion, !machine.holdsAssertion, !record.isAwaited, policyAllows(),
            let adapter = record.adapter,
            let assertion = adapter.beginAssertion()
        else { return {} }
        lifecycle.withRecord { $0.policyAssertion = assertion }
        return { [lifecycle] in
            let isHeld = lifecycle.withRecord { record in
                // Else its time was over, and it has been given back.
                guard record.policyAssertion == assertion else { return false }
                record.policyAssertion = nil
                return true
            }
            if isHeld { adapter.endAssertion(assertion) }
        }
    }
}
