import HapaxModel
import TestSupport
import Testing

@Suite(.endsWhenItHangs)
struct GzipTests {
    private func noise(_ count: Int) -> [UInt8] {
        var random = SeededRandom(seed: UInt64(count))
        return (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
    }

    @Test(arguments: [0, 1, 63, 65_535, 65_536, 65_537, 1_000_000])
    func bytesComeBack(count: Int) throws {
        for level in [Int32(1), 6, 9] {
            for bytes in [noise(count), [UInt8](repeating: 7, count: count)] {
                #expect(try Gzip.decompress(Gzip.compress(bytes, level: level), limit: count) == bytes)
            }
        }
    }

    @Test("an absolute limit at n−1, n and n+1, on both sides of the working buffer")
    func limitIsAbsolute() throws {
        for count in [1, 100, 65_535, 65_536, 65_537, 200_000] {
            let compressed = try Gzip.compress([UInt8](repeating: 7, count: count))
            #expect(throws: Gzip.Failure.tooLarge) { try Gzip.decompress(compressed, limit: count - 1) }
            #expect(try Gzip.decompress(compressed, limit: count).count == count)
            #expect(try Gzip.decompress(compressed, limit: count + 1).count == count)
        }
    }

    @Test("I13: a bomb costs no more than the limit")
    func bombIsStoppedAtTheLimit() throws {
        let bomb = try Gzip.compress([UInt8](repeating: 0, count: 64 * 1024 * 1024), level: 9)
        #expect(bomb.count < 70_000)
        #expect(throws: Gzip.Failure.tooLarge) { try Gzip.decompress(bomb, limit: EventLimits.maximumDecompressedBodyBytes) }
        // The limit holds for all members together.
        let part = try Gzip.compress([UInt8](repeating: 0, count: 1_000))
        let parts = Array([part, part, part].joined())
        #expect(try Gzip.decompress(parts, limit: 3_000).count == 3_000)
        #expect(throws: Gzip.Failure.tooLarge) { try Gzip.decompress(parts, limit: 2_999) }
    }

    @Test func severalMembersAreOne() throws {
        let joined = try Gzip.compress(Array("ab".utf8)) + Gzip.compress([]) + Gzip.compress(Array("cd".utf8))
        #expect(try Gzip.decompress(joined, limit: 100) == Array("abcd".utf8))
    }

    @Test("zeros behind the last member are padding, as for gzip(1)")
    func zeroPaddingIsIgnored() throws {
        let padded = try Gzip.compress(Array("ab".utf8)) + [UInt8](repeating: 0, count: 512)
        #expect(try Gzip.decompress(padded, limit: 100) == Array("ab".utf8))
    }

    @Test func cutOrForeignBytesAreDamaged() throws {
        let whole = try Gzip.compress(Array("some text that is compressed, some text that is compressed".utf8))
        for length in 0..<whole.count {
            #expect(throws: Gzip.Failure.damaged) { try Gzip.decompress(Array(whole[..<length]), limit: 1_000) }
        }
        for bytes in [[], [0x1F], Array("{\"events\":[]}".utf8), [0x78, 0x9C, 3, 0, 0, 0, 0, 1], whole + [0, 1], whole + Array("x".utf8)] {
            #expect(throws: Gzip.Failure.damaged) { try Gzip.decompress(bytes, limit: 1_000) }
        }
    }

    @Test("a flipped bit is found by the checksum or the format, or lies where it does not matter")
    func flippedBitsNeverGiveOtherBytes() throws {
        let plain = Array("some text that is compressed, some text that is compressed".utf8)
        let whole = try Gzip.compress(plain)
        var refused = 0
        for bit in 0..<whole.count * 8 {
            var flipped = whole
            flipped[bit / 8] ^= 1 << (bit % 8)
            do {
                #expect(try Gzip.decompress(flipped, limit: 1_000_000) == plain)
            } catch {
                refused += 1
            }
        }
        // The header's time stamp, system and hints are not checked: nine bytes at most.
        #expect(refused > (whole.count - 9) * 8)
    }
}
