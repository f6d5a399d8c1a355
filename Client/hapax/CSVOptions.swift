import ArgumentParser
import Foundation

/// How `hapax import` reads a CSV file.
struct CSVOptions: ParsableArguments {
    @Flag(name: .customLong("csv"), help: "The file is CSV; its first line names the columns.")
    var isCSV = false

    @Option(help: ArgumentHelp("The column with the events' names.", valueName: "column"))
    var event: String?

    @Option(help: ArgumentHelp("The name of every event, or of those whose --event is empty.", valueName: "name"))
    var name: String?

    @Option(help: ArgumentHelp("The column with the times: ISO 8601, or Unix milliseconds.", valueName: "column"))
    var time: String?

    @Option(help: ArgumentHelp("The column with the users (distinct_id).", valueName: "column"))
    var user: String?

    @Option(help: ArgumentHelp("The columns that tell one event from another, with commas between. Default: all.", valueName: "columns"))
    var idFrom: String?

    @Flag(help: "Ids without the day, as of track --derive-id: for keys that a service has sent so, or whose times may be corrected.")
    var undated = false

    @Option(help: ArgumentHelp("The column with the events' own ids (UUIDs).", valueName: "column"))
    var id: String?

    @Option(help: ArgumentHelp("Columns that stay text, as of postcodes, with commas between.", valueName: "columns"))
    var text: String?

    @Option(help: ArgumentHelp("The zone of times that name none, such as Europe/Berlin.", valueName: "zone"))
    var zone: String?

    /// nil for a file of lines.
    var options: CSVMapping.Options? {
        guard isCSV, let time, let user else { return nil }
        func names(_ list: String?) -> [String] { list?.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) } ?? [] }
        return CSVMapping.Options(
            event: event, name: name, time: time, user: user, id: id, idFrom: names(idFrom), isDated: !undated, textColumns: names(text),
            zone: zone)
    }

    func validate() throws {
        guard isCSV else {
            if undated || [event, name, time, user, idFrom, id, text, zone].contains(where: { $0 != nil }) {
                throw ValidationError(
                    "--event, --name, --time, --user, --id-from, --undated, --id, --text and --zone are about columns: give --csv.")
            }
            return
        }
        guard time != nil, user != nil, event != nil || name != nil else {
            throw ValidationError("Which columns? Give --time, --user, and --event (or --name for all).")
        }
        if idFrom != nil || undated, id != nil { throw ValidationError("Give --id-from or --id, not both.") }
        for list in [idFrom, text] where list?.split(separator: ",").isEmpty == true {
            throw ValidationError("A list of columns is empty.")
        }
        if let zone, TimeZone(identifier: zone) == nil { throw ValidationError("This machine knows no time zone '\(zone)'.") }
    }
}
