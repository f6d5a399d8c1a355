import HapaxModel

/// Whether a request may be made at this moment, whoever wants it: the app's life decides (R31, R33), and for what nobody asked for
/// its settings, the network and the server, too (R18, R23, R26, I16).
///
/// A process without an adapter, a service or a command, is never in the background: nothing is held up there.
struct RequestGate: Sendable {
    let lifecycle: AppLifecycle
    /// Whether there are uploads that nobody asked for, and over this network.
    let policyAllows: @Sendable () -> Bool
    let clock: any ClientClock
    /// Monotonic: until then the server is left alone. It does not matter which queue's request it refused.
    private let notBefore = Locked(Duration.zero)

    init(lifecycle: AppLifecycle, clock: any ClientClock, policyAllows: @escaping @Sendable () -> Bool) {
        (self.lifecycle, self.clock, self.policyAllows) = (lifecycle, clock, policyAllows)
    }

    /// Heeds what the server asks for, and a refusal that time alone is not likely to change.
    func answered(_ answer: AnswerClassifier.Answer) {
        let rest: Duration
        switch answer {
        case .tryLater(_, let retryAfter): rest = min(retryAfter ?? .zero, RetryPolicy.delivery.cap)
        case .pause: rest = DeliveryStateMachine.probeInterval
        case .batchRefused: return
        case .accepted: rest = .zero
        }
        notBefore.withLock { $0 = clock.monotonic + rest }
    }

    /// - Parameter isManual: Whether somebody asked; else a policy did.
    func permission(isManual: Bool) -> RequestPermission {
        let (machine, record) = lifecycle.snapshot()
        guard isManual || policyAllows() else { return .denied }
        let rest = notBefore.withLock { $0 } - clock.monotonic
        if !isManual, rest > .zero { return .postponed(rest) }
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
