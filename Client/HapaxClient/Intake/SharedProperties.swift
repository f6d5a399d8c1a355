import HapaxModel

/// What each event would say besides its own. What no event may hold is not taken: each event would be a dead letter, in later runs too.
enum SharedProperties {
    /// A value that is not taken.
    struct Refused: Hashable, Sendable {
        var name: String
        /// Why; names the place, and holds nothing of the value.
        var detail: String
    }

    /// Takes what fits into an event, name by name, so that one bad value keeps no other away.
    ///
    /// - Parameters:
    ///   - before: What holds until now; a name whose new value is refused keeps its value.
    ///   - others: What each event says in addition.
    static func accepted(
        _ wanted: Properties, before: Properties = [:], over others: Properties = [:]
    ) -> (properties: Properties, refused: [Refused]) {
        var refused = wanted.problem.map { [Refused(name: "an encoded value", detail: $0.detail)] } ?? []
        let values = wanted.byName
        if problem(values, others) == nil { return (Properties(values), refused) }
        var taken = before.byName.filter { values[$0.key] != nil }
        for (name, value) in values.sorted(by: { $0.key < $1.key }) where taken[name] != value {
            var more = taken
            more[name] = value
            if let problem = problem(more, others) {
                refused.append(Refused(name: String(name.prefix(nameCharacters)), detail: problem.detail))
            } else {
                taken = more
            }
        }
        return (Properties(taken), refused)
    }

    private static let nameCharacters = 60

    private static func problem(_ values: [String: PropertyValue], _ others: Properties) -> EventProblem? {
        // Room for the longest name and user, and for what the client itself adds: session, anonymous id, screen, state.
        let longest = String(repeating: "x", count: EventLimits.maximumNameBytes)
        let added = Properties(Dictionary(uniqueKeysWithValues: (1...4).map { (longest + "\($0)", longest) }))
        let event = Event(id: .least, name: longest, time: 0, distinctID: longest, properties: added)
            .encoded(over: EncodedProperties(others.merging(Properties(values))))
        return PreparedEvent(id: .least, time: 0, bytes: event.bytes, problem: event.problem).problem
    }
}
