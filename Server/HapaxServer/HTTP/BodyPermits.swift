import HapaxModel

/// Bounds the memory of bodies that are being read, before group commit counts them.
final class BodyPermits: Sendable {
    private let limit: Int
    private let taken = Locked(0)

    init(limit: Int) { self.limit = limit }

    /// - Returns: Whether there is room; if so, it must be given back. A single body always finds room.
    func take(_ bytes: Int) -> Bool {
        taken.withLock { taken in
            guard taken == 0 || taken + bytes <= limit else { return false }
            taken += bytes
            return true
        }
    }

    func giveBack(_ bytes: Int) {
        taken.withLock { $0 -= bytes }
    }
}
