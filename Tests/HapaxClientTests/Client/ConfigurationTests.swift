import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite(
    "EventClient.Configuration: the defaults that users are told (R1, R5, R10, R19, R20, R24, R25)", .endsWhenItHangs)
struct ConfigurationTests {
    private let configuration = EventClient.Configuration(server: "http://host/base/", writeKey: "k", queueDirectory: "q")

    @Test("uploads: 50 events a request (R10), 30 s (R5), from 100 stored (R19), every 15 s (R20), $AppStart at once (R25)")
    func uploadDefaults() throws {
        #expect(configuration.batchSize == 50 && configuration.requestTimeout == .seconds(30))
        #expect(configuration.uploads.bulkSize == 100 && configuration.uploads.interval == .seconds(15))
        #expect(configuration.uploads.immediateEvents == ["$AppStart"])
        #expect(configuration.network() == .wired)
        #expect(configuration.queue.durability == .process)
        let endpoint = try configuration.endpoint()
        #expect(endpoint.url == "http://host/base/v1/events" && endpoint.timeout == .seconds(30))
        let careless = EventClient.Configuration(server: "http://host//", writeKey: "k", queueDirectory: "q")
        #expect(try careless.endpoint().url == "http://host/v1/events")
    }

    @Test("cellular networks are allowed but for 2G (R5, R24)")
    func cellularIsAllowed() {
        #expect(configuration.uploads.networks == [.cellular3G, .cellular4G, .cellular5G, .wifi, .wired])
    }

    @Test("a batch size outside 1…1000 acts as the nearest (R10, I13)", arguments: [(-1, 1), (0, 1), (1_000, 1_000), (5_000, 1_000)])
    func batchSizeIsBounded(set: Int, acts: Int) throws {
        var configuration = configuration
        configuration.batchSize = set
        #expect(try configuration.endpoint().batchSize == acts)
    }

    @Test("server and key are needed, each without a default (R1, R3)")
    func serverAndKeyAreNeeded() {
        for (server, key, error) in [("", "k", StartError.malformedURL), ("http://host", "", .invalidKey)] {
            #expect(throws: error) {
                try EventClient.Configuration(server: server, writeKey: key, queueDirectory: "q").endpoint()
            }
        }
    }

    @Test(
        "from the environment: nothing without server and key, an error that names the missing one, with both the command line's own variables"
    )
    func environmentConfigures() throws {
        typealias Configuration = EventClient.Configuration
        for empty in [[:], ["HAPAX_SERVER": "", "HAPAX_KEY": ""], ["HAPAX_QUEUE": "/q"]] {
            #expect(try Configuration(environment: empty) == nil)
        }
        #expect(throws: StartError.missing("HAPAX_KEY")) { try Configuration(environment: ["HAPAX_SERVER": "http://h", "HAPAX_KEY": ""]) }
        #expect(throws: StartError.missing("HAPAX_SERVER")) { try Configuration(environment: ["HAPAX_KEY": "k"]) }
        let both = ["HAPAX_SERVER": "http://h", "HAPAX_KEY": "k"]
        let standard = try #require(try Configuration(environment: both))
        #expect(standard.server == URL(string: "http://h") && standard.writeKey == "k")
        #expect(standard.queue.directory == Configuration.standardQueueDirectory)
        let own = try #require(try Configuration(environment: both.merging(["HAPAX_QUEUE": "/q"]) { $1 }))
        #expect(own.queue.directory.path == "/q")
        #expect(throws: StartError.malformedURL) { try Configuration(environment: ["HAPAX_SERVER": "shop", "HAPAX_KEY": "k"]) }
    }

    @Test("the key may stand in a file, as secrets do; one that cannot be read, is empty or is given twice is an error (C30)")
    func keyMayStandInAFile() throws {
        typealias Configuration = EventClient.Configuration
        let directory = TemporaryDirectory()
        let both = ["HAPAX_SERVER": "http://h", "HAPAX_KEY_FILE": directory.path("key")]
        #expect(throws: StartError.keyFile(StorageFailure(errno: ENOENT))) { try Configuration(environment: both) }
        try Data("hapax_w_k\n".utf8).write(to: URL(filePath: directory.path("key")))
        #expect(try Configuration(environment: both)?.writeKey == "hapax_w_k")
        #expect(throws: StartError.keySetTwice) { try Configuration(environment: both.merging(["HAPAX_KEY": "k"]) { $1 }) }
        #expect(throws: StartError.missing("HAPAX_SERVER")) { try Configuration(environment: ["HAPAX_KEY_FILE": directory.path("key")]) }
        try Data("\n".utf8).write(to: URL(filePath: directory.path("key")))
        #expect(throws: StartError.invalidKey) { try Configuration(environment: both) }
    }

    @Test("a directory without a name is refused: it would be the working directory")
    func directoryNeedsAName() {
        var configuration = configuration
        configuration.queue.directory = URL(filePath: "")
        #expect(throws: StartError.queueUnusable(StorageFailure(errno: ENOENT))) { _ = try EventClient.start(configuration) }
    }

    @Test("a relative directory stays where it is when the process goes elsewhere: the opt-out mark, too (D16)")
    func directoryIsAbsolute() {
        let here = FileManager.default.currentDirectoryPath
        #expect(QueueDirectory(path: "events").path == here + "/events")
        #expect(QueueDirectory(path: "/events").path == "/events")
    }

    @Test("two programs of a Mac without a sandbox have a queue each: by the bundle's identifier, or else the executable's name (C7)")
    func programsHaveTheirOwnDirectory() {
        let directories = [("org.example.shop", "Shop"), (nil, "shop-sync"), ("", "tool"), (nil, nil)].map {
            EventClient.Configuration.directoryOfProgram($0.0, executable: $0.1)
        }
        #expect(directories == ["org.example.shop/hapax", "shop-sync/hapax", "tool/hapax", "program/hapax"])
    }
}
