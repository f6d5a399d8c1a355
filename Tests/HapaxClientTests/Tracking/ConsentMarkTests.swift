import Foundation
import TestSupport
import Testing

@testable import HapaxClient

@Suite("ConsentMark (D16)", .endsWhenItHangs)
struct ConsentMarkTests {
    private let place = TemporaryDirectory()
    private var directory: QueueDirectory { QueueDirectory(path: place.path + "/queue") }

    init() throws { try directory.make() }

    @Test(
        "whatever is said, once or twice, holds, and each decision has a later number, also on a clock that stands still; the first one counts in any case"
    )
    func repetitionsAreNothing() throws {
        var mark = try ConsentMark(directory)
        var (last, before) = (Int64(0), Consent.granted)
        for consent in [Consent.granted, .denied, .denied, .pending, .pending, .denied, .granted] {
            let kept = try mark.set(consent, now: 1)
            #expect(
                try kept.consent == consent && mark.current() == kept && ConsentMark(directory).known == kept
                    && directory.consent == consent)
            let number = try #require(kept.number)
            #expect((consent == before && last > 0) || consent == .pending ? number == last : number > last)
            (last, before) = (number, consent)
        }
    }

    @Test("a denial that cannot be written is told, and holds for whoever asked, not for others; anything else has to be written")
    func unwrittenDenialHolds() throws {
        var mark = try ConsentMark(directory)
        _ = try mark.set(.pending, now: 1)
        try FileManager.default.moveItem(atPath: directory.path, toPath: directory.path + ".moved")
        #expect(mark.current().consent == .pending, "nobody can tell")
        for consent in [Consent.denied, .granted] {
            #expect(throws: POSIXError(.ENOENT)) { try mark.set(consent, now: 2) }
            #expect(mark.current().consent == .denied && mark.current().decision(after: 0) == false)
        }
        try FileManager.default.moveItem(atPath: directory.path + ".moved", toPath: directory.path)
        #expect(try directory.consent == .pending)
        let kept = try mark.set(.granted, now: 3)
        #expect(kept.consent == .granted && kept.decision(after: 0) == false, "what waited before was denied")
        try directory.setConsent(.denied)
        #expect(mark.current().consent == .denied, "what others say counts again")
    }

    @Test("a change whose directory cannot be flushed is told; it may be a denial afterwards, and is nothing that was not there before")
    func changeThatIsNotDurableAllowsNothing() throws {
        let fails: @Sendable (Int32) -> Int32 = { _ in
            errno = EIO
            return -1
        }
        for before in [Consent?.none, .pending, .denied] {
            for consent in Consent.allCases {
                try? FileManager.default.removeItem(atPath: directory.consentPath)
                if let before { try directory.setConsent(before) }
                var mark = try ConsentMark(directory, file: ConsentFile(directory, flush: fails))
                #expect(throws: POSIXError(.EIO)) { try mark.set(consent, now: 1) }
                let expected = consent == .denied ? .denied : before ?? .granted
                #expect(try mark.current().consent == expected && directory.consent == expected, "\(before as Any) \(consent)")
            }
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["consent"])
    }

    @Test(
        "what cannot be read is neither an agreement nor a denial, and whoever reads it learns so; whatever is said next holds (C2)",
        arguments: ["a directory", "a loop", "noise"])
    func unreadableIsNotKnown(what: String) throws {
        let path = directory.consentPath
        var mark = try ConsentMark(directory)
        switch what {
        case "a loop": try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: path)
        case "noise": try Data(what.utf8).write(to: URL(filePath: path))
        default: try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        }
        #expect(throws: UnreadableFile.self) { try directory.consent }
        #expect(throws: UnreadableFile.self) { try ConsentMark(directory) }
        for isFirst in [true, false] { #expect(mark.current().consent == .granted && (mark.takeFailure() != nil) == isFirst) }
        if what == "a directory" {
            #expect(throws: (any Error).self) { try mark.set(.granted, now: 7) }
            try FileManager.default.removeItem(atPath: path)
            try Data().write(to: URL(filePath: path))
        }
        let kept = try mark.set(.granted, now: 7)
        #expect(kept.consent == .granted && kept.decision(after: 6) == false, "nobody knows what it was about")
    }

    @Test("the file by which earlier versions remembered an opt-out is a denial until something else is said")
    func formerMarkCounts() throws {
        #expect(FileManager.default.createFile(atPath: directory.path + "/opt-out", contents: nil))
        #expect(try ConsentMark(directory).known == KeptConsent(consent: .denied))
        try directory.setConsent(.granted)
        #expect(try ConsentMark(directory).known.consent == .granted)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["consent"])
    }

    @Test("what waits has the first decision behind it, however many follow; of what is too long ago it is a denial")
    func firstDecisionCounts() throws {
        var kept = KeptConsent(consent: .pending)
        #expect(kept.decision(after: 0) == nil)
        for consent in [Consent.granted, .pending, .denied, .pending] { kept = kept.changed(to: consent, now: 1) }
        #expect([0, 1, 2].map { kept.decision(after: $0) } == [true, false, nil], "\(kept)")
        #expect(kept.decision(after: -1) == false && KeptConsent(consent: .granted).decision(after: -1) == true)
        #expect(KeptConsent.unknown.decision(after: 0) == nil)
        for _ in 0..<200 { for consent in [Consent.granted, .pending] { kept = kept.changed(to: consent, now: 1) } }
        let number = try #require(kept.number)
        #expect(kept.decisions?.count == 100 && kept.decision(after: 0) == false && kept.decision(after: number - 1) == true)
        let data = try JSONEncoder().encode(kept)
        #expect(try JSONDecoder().decode(KeptConsent.self, from: data) == kept)
        #expect(try JSONDecoder().decode(KeptConsent.self, from: Data(#"{"consent":"pending"}"#.utf8)) == KeptConsent(consent: .pending))
    }

    @Test("a file that is gone, with its directory or alone, says nothing new to who has read it")
    func missingFileSaysNothing() throws {
        var mark = try ConsentMark(directory)
        _ = try mark.set(.pending, now: 1)
        try FileManager.default.removeItem(atPath: directory.consentPath)
        #expect(mark.current().consent == .pending)
        try FileManager.default.removeItem(atPath: directory.path)
        try directory.make()
        #expect(try mark.current().consent == .pending && ConsentMark(directory).known.consent == .granted)
    }

    @Test("what a configuration says is kept where nobody has said anything, and not where that cannot be read")
    func configuredOnce() throws {
        try ConsentFile(directory).begin(.pending)
        try ConsentFile(directory).begin(.denied)
        #expect(try directory.consent == .pending)
        try Data().write(to: URL(filePath: directory.consentPath))
        #expect(throws: UnreadableFile.self) { try ConsentFile(directory).begin(.pending) }
        #expect(try Data(contentsOf: URL(filePath: directory.consentPath)).isEmpty)
    }
}
