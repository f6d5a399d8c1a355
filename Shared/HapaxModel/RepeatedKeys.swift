/// Finds an object's repeated keys by their hashes: compares few keys in pairs, and uses a table for many, which is kept for the next object.
final class RepeatedKeys {
    /// Twice ``EventLimits/maximumKeysPerObject``, and a power of two, so that a mask gives the slot.
    private static let slotCount = 512
    private static let comparedKeys = 16

    private var slots: [(round: UInt64, place: Int)] = []
    private var round: UInt64 = 0

    /// - Parameters:
    ///   - count: Keys of the object, at most ``EventLimits/maximumKeysPerObject``.
    ///   - hash: Returns the hash of the key at a place.
    ///   - found: Called once for each place whose key comes again later.
    func search(_ count: Int, hash: (Int) -> UInt64, found: (Int) -> Void) {
        guard count > Self.comparedKeys else {
            for place in 0..<count {
                let own = hash(place)
                var later = place + 1
                while later < count, hash(later) != own { later += 1 }
                if later < count { found(place) }
            }
            return
        }
        if slots.isEmpty { slots = Array(repeating: (0, 0), count: Self.slotCount) }
        round += 1
        for place in 0..<count {
            let own = hash(place)
            var slot = Int(truncatingIfNeeded: own) & (Self.slotCount - 1)
            while slots[slot].round == round, hash(slots[slot].place) != own { slot = (slot + 1) & (Self.slotCount - 1) }
            if slots[slot].round == round { found(slots[slot].place) }
            slots[slot] = (round, place)
        }
    }
}
