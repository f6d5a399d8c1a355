import HapaxModel

extension QueueWriter {
    /// Tells the server about damage, as an event like any other (I11).
    func report(_ damage: QueueDamage, distinctID: String, now: Int64) {
        var properties: Properties = [
            "$salvaged": .integer(Int64(damage.salvaged)), "$salvaged_dead_letters": .integer(Int64(damage.salvagedDeadLetters)),
        ]
        if let lost = damage.lost { properties["$lost"] = .integer(Int64(lost)) }
        let admission = intake.withLock {
            $0.admit(name: QueueDamage.eventName, properties: properties, id: nil, time: nil, distinctID: distinctID, now: now)
        }
        if case .admitted(_, _, true) = admission { wake() }
    }
}
