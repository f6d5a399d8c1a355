import Foundation
import TestSupport
import Testing

@testable import HapaxClient

@Suite("OptOutMark (D16)", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct OptOutMarkTests {
    private let directory = TemporaryDirectory()

    @Test("set or not, once or twice, it is what was asked for")
    func repetitionsAreNothing() throws {
        var mark = OptOutMark(path: directory.path + "/opted-out")
        for isSet in [false, true, true, false, false] {
            try mark.set(isSet)
            #expect(mark.isSet == isSet)
        }
    }

    @Test("what cannot be written is told: neither way may it be taken for done")
    func failuresAreTold() throws {
        // Where the mark would be there is something that is no file.
        var mark = OptOutMark(path: directory.path + "/opted-out")
        try FileManager.default.createDirectory(atPath: mark.path + "/something", withIntermediateDirectories: true)
        for isSet in [true, false] { #expect(throws: POSIXError.self) { try mark.set(isSet) } }
        var lost = OptOutMark(path: directory.path + "/nowhere/opted-out")
        for isSet in [true, false] { #expect(throws: POSIXError.self) { try lost.set(isSet) } }
    }

    @Test("an opt-out that cannot be written holds for whoever asked, and not for others; its opposite has to be written")
    func unwrittenWishHolds() throws {
        let place = directory.path + "/place"
        var mark = OptOutMark(path: place + "/opted-out")
        #expect(throws: POSIXError.self) { try mark.set(true) }
        #expect(mark.isSet && !OptOutMark(path: mark.path).isSet)
        try FileManager.default.createDirectory(atPath: mark.path + "/something", withIntermediateDirectories: true)
        #expect(throws: POSIXError.self) { try mark.set(false) }
        #expect(mark.isSet && OptOutMark(path: mark.path).isSet)
        try FileManager.default.removeItem(atPath: mark.path)
        try mark.set(true)
        #expect(mark.isSet)
        try FileManager.default.removeItem(atPath: mark.path)
        #expect(!mark.isSet, "what others change counts again")
    }

    @Test("a change whose directory cannot be flushed is told, and leaves events refused, here and for who looks later")
    func changeThatIsNotDurableRefuses() throws {
        let path = directory.path + "/opted-out"
        for isSet in [true, false] {
            var mark = OptOutMark(path: path)
            try mark.set(!isSet)
            mark = OptOutMark(path: path) { _ in
                errno = EIO
                return -1
            }
            #expect(throws: POSIXError(.EIO)) { try mark.set(isSet) }
            #expect(mark.isSet && OptOutMark(path: path).isSet, "\(isSet)")
        }
    }

    @Test("where its directory is not there nobody can tell, and what was said last holds")
    func missingDirectorySaysNothing() throws {
        #expect(OptOutMark(path: directory.path + "/nowhere/opted-out").found == nil)
        var mark = OptOutMark(path: directory.path + "/opted-out")
        #expect(mark.found == false)
        try mark.set(true)
        #expect(mark.found == true)
        var lost = OptOutMark(path: directory.path + "/nowhere/opted-out")
        #expect(throws: POSIXError.self) { try lost.set(true) }
        #expect(lost.found == true)
    }

    @Test("one that cannot be looked for may be there")
    func unknownCountsAsSet() throws {
        let path = directory.path + "/opted-out"
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: path)
        #expect(OptOutMark(path: path).isSet)
    }
}
