/// The check sum of a write-ahead log (https://www.sqlite.org/fileformat2.html#the_checksum_algorithm): two sums over pairs of numbers, each
/// frame's going on from the one before.
struct LogCheckSum: Hashable {
    var first: UInt32 = 0
    var second: UInt32 = 0

    init() {}

    init(_ log: UnsafeRawBufferPointer, at offset: Int) {
        first = Self.number(log, offset)
        second = Self.number(log, offset + 4)
    }

    var numbers: [UInt32] { [first, second] }

    func differsByOneBit(from other: LogCheckSum) -> Bool {
        (first ^ other.first).nonzeroBitCount + (second ^ other.second).nonzeroBitCount == 1
    }

    mutating func add(_ bytes: Slice<UnsafeRawBufferPointer>) {
        let bytes = UnsafeRawBufferPointer(rebasing: bytes)
        for offset in stride(from: 0, to: bytes.count, by: 8) {
            first &+= UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)) &+ second
            second &+= UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)) &+ first
        }
    }

    /// The bits of which one has to be changed back for bytes to have the sum that was written with them.
    ///
    /// The sums are linear: what a changed number does to them is its change times a factor that only its place decides. So every bit can be
    /// tried. Those that are the highest of their numbers can look alike: then nobody knows which it was.
    ///
    /// - Parameters:
    ///   - sum: Of the bytes as they are now.
    ///   - written: The sum that was written.
    /// - Returns: The byte's offset and the bit in it of each that fits; none if more has changed.
    static func changedBits(in bytes: [UInt8], sum: LogCheckSum, written: LogCheckSum) -> [(byte: Int, bit: UInt8)] {
        let wanted = (written.first &- sum.first, written.second &- sum.second)
        // How far a change of either sum gets through all pairs behind it: a power of the matrix of one pair.
        var power: (UInt32, UInt32, UInt32, UInt32) = (1, 0, 0, 1)
        var found: [(byte: Int, bit: UInt8)] = []
        for pair in stride(from: bytes.count - 8, through: 0, by: -8) {
            let factors = [
                (pair, power.0 &+ power.1, power.2 &+ power.3),
                (pair + 4, power.1, power.3),
            ]
            for (offset, first, second) in factors {
                for index in 0..<32 {
                    let byte = offset + index / 8
                    let bit = UInt8(1) << UInt8(index % 8)
                    let size = UInt32(1) << UInt32(index)
                    let change = bytes[byte] & bit == 0 ? size : 0 &- size
                    guard first &* change == wanted.0, second &* change == wanted.1 else { continue }
                    found.append((byte, bit))
                }
            }
            power = (power.0 &+ power.1, power.0 &+ 2 &* power.1, power.2 &+ power.3, power.2 &+ 2 &* power.3)
        }
        return found
    }

    /// One of the log's own numbers, which have their highest byte first.
    static func number(_ log: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        UInt32(bigEndian: log.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }
}
