/// Sequences as sorted ranges that neither overlap nor touch.
///
/// A sequence is from 0 to ``maximum``. As text it is what PostgreSQL calls an `int8multirange`: `{[1,51),[60,61)}`
/// (https://www.postgresql.org/docs/current/rangetypes.html).
package struct SequenceSet: Hashable, Sendable {
    package private(set) var ranges: [ClosedRange<Int64>] = []

    /// No install gives as many. What lies above is cut off, so that sums over nine million installs are numbers.
    package static let maximum: Int64 = 1_000_000_000_000

    package init() {}
    package init(_ ranges: some Sequence<ClosedRange<Int64>>) { for range in ranges { insert(range) } }

    var last: Int64? { ranges.last?.upperBound }
    var isEmpty: Bool { ranges.isEmpty }

    /// How many sequences are in it.
    package var count: Int64 { ranges.reduce(0) { $0 + ($1.upperBound - $1.lowerBound) + 1 } }

    package mutating func insert(_ range: ClosedRange<Int64>) {
        guard range.lowerBound >= 0, range.lowerBound <= Self.maximum else { return }
        let range = range.lowerBound...min(range.upperBound, Self.maximum)
        // Nearly always after all others, or right after the last one.
        guard let end = ranges.last?.upperBound, range.lowerBound <= end else {
            if let last = ranges.last, last.upperBound + 1 == range.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound...range.upperBound
            } else {
                ranges.append(range)
            }
            return
        }
        // Those that overlap it or touch it are one with it.
        let first = ranges.firstIndex { $0.upperBound >= range.lowerBound - 1 } ?? ranges.endIndex
        let after = ranges[first...].firstIndex { $0.lowerBound - 1 > range.upperBound } ?? ranges.endIndex
        let joined = ranges[first..<after]
        let lower = min(joined.first?.lowerBound ?? range.lowerBound, range.lowerBound)
        ranges.replaceSubrange(first..<after, with: [lower...max(joined.last?.upperBound ?? range.upperBound, range.upperBound)])
    }

    package mutating func formUnion(_ other: SequenceSet) { for range in other.ranges { insert(range) } }

    package func subtracting(_ other: SequenceSet) -> SequenceSet {
        var left = SequenceSet()
        var others = other.ranges[...]
        for range in ranges {
            var lower = range.lowerBound
            while let next = others.first, next.upperBound < lower { others.removeFirst() }
            for next in others.prefix(while: { $0.lowerBound <= range.upperBound }) {
                if lower < next.lowerBound { left.ranges.append(lower...(next.lowerBound - 1)) }
                lower = next.upperBound + 1
            }
            if lower <= range.upperBound { left.ranges.append(lower...range.upperBound) }
        }
        return left
    }

    /// With so many ranges at most: those with the least between them are joined.
    package func coarsened(to most: Int) -> SequenceSet {
        guard ranges.count > most else { return self }
        func gap(_ index: Int) -> Int64 { ranges[index].lowerBound - ranges[index - 1].upperBound }
        let joined = Set(ranges.indices.dropFirst().sorted { (gap($0), $0) < (gap($1), $1) }.prefix(ranges.count - most))
        var coarse = SequenceSet()
        for (index, range) in ranges.enumerated() {
            if joined.contains(index), let last = coarse.ranges.popLast() {
                coarse.ranges.append(last.lowerBound...range.upperBound)
            } else {
                coarse.ranges.append(range)
            }
        }
        return coarse
    }

    package func intersection(_ range: ClosedRange<Int64>) -> SequenceSet {
        SequenceSet(ranges.filter { $0.overlaps(range) }.map { $0.clamped(to: range) })
    }
}

extension SequenceSet: CustomStringConvertible {
    package var description: String { "{\(ranges.map { "[\($0.lowerBound),\($0.upperBound + 1))" }.joined(separator: ","))}" }

    /// - Returns: nil for a text that is no such set.
    init?(_ text: String) {
        var numbers: [Int64] = []
        var (digits, isNumber) = (Int64(0), false)
        let bytes = text.utf8
        guard bytes.first == UInt8(ascii: "{"), bytes.last == UInt8(ascii: "}") else { return nil }
        for byte in bytes.dropFirst() {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"):
                guard digits <= Self.maximum else { return nil }
                (digits, isNumber) = (digits * 10 + Int64(byte - UInt8(ascii: "0")), true)
            case UInt8(ascii: ","), UInt8(ascii: ")"), UInt8(ascii: "["), UInt8(ascii: "}"):
                if isNumber { numbers.append(digits) }
                (digits, isNumber) = (0, false)
            default: return nil
            }
        }
        guard numbers.count.isMultiple(of: 2) else { return nil }
        self.init()
        ranges.reserveCapacity(numbers.count / 2 + 1)
        for index in stride(from: 0, to: numbers.count, by: 2) {
            guard numbers[index] < numbers[index + 1] else { return nil }
            insert(numbers[index]...(numbers[index + 1] - 1))
        }
    }
}
