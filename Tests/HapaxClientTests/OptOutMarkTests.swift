import Foundation
import TestSupport
import Testing

@testable import HapaxClient

@Suite("OptOutMark (D16)")
struct OptOutMarkTests {
    private let directory = TemporaryDirectory()

    @Test("set or not, once or twice, it is what was asked for")
    func repetitionsAreNothing() throws {
        let mark = OptOutMark(path: directory.path + "/opted-out")
        for isSet in [false, true, true, false, false] {
            try mark.set(isSet)
            #expect(mark.isSet == isSet)
        }
    }

    @Test("what cannot be written is told: neither way may it be taken for done")
    func failuresAreTold() throws {
        // Where the mark would be there is something that is no file.
        let mark = OptOutMark(path: directory.path + "/opted-out")
        try FileManager.default.createDirectory(atPath: mark.path + "/something", withIntermediateDirectories: true)
        for isSet in [true, false] { #expect(throws: POSIXError.self) { try mark.set(isSet) } }
        let lost = OptOutMark(path: directory.path + "/nowhere/opted-out")
        for isSet in [true, false] { #expect(throws: POSIXError.self) { try lost.set(isSet) } }
    }
}
