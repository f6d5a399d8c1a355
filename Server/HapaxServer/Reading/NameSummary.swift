import HapaxModel

/// The names of events with how many there are of each, and the properties that a sample of them has.
struct NameSummary {
    private let counts: NameCounts
    private var properties: [[UInt8]: Set<[UInt8]>] = [:]
    private let sampled: Int

    init(counts: NameCounts, sample: [EventRow]) {
        self.counts = counts
        sampled = sample.count
        for event in sample { properties[event.name, default: []].formUnion(PropertyLookup.names(in: event.properties[...])) }
    }

    /// The commonest first, ties by their bytes.
    func write(to writer: inout JSONWriter) {
        let order = counts.names.sorted { $0.value != $1.value ? $0.value > $1.value : $0.key.lexicographicallyPrecedes($1.key) }
        writer.member("names", list: order) { writer, name in
            writer.object { writer in
                writer.member("event")
                writer.text(name.key)
                writer.member("count", name.value)
                writer.member("properties", list: (properties[name.key] ?? []).sorted { $0.lexicographicallyPrecedes($1) }) { $0.text($1) }
            }
        }
        writer.member("other", counts.other)
        writer.member("sampled", sampled)
    }
}
