import ArgumentParser
import HapaxModel

/// One `--property`: `name=text`, or `name:=json` for a value of another type.
struct PropertyArgument: Hashable {
    var name: String
    var value: PropertyValue

    /// To be called by `validate()`: the parser's own messages repeat the whole argument.
    ///
    /// - Throws: What is wrong, without the value, which may be a secret (I14).
    static func parse(_ argument: String) throws -> PropertyArgument {
        if let property = PropertyArgument(argument: argument) { return property }
        guard let sign = argument.firstIndex(of: "="), sign != argument.startIndex else {
            throw ValidationError("A property is name=text or name:=json.")
        }
        let name = argument[..<sign].dropLast()
        if name.isEmpty { throw ValidationError("A property has a name: name=text or name:=json.") }
        throw ValidationError("The value of property '\(name)' is not JSON that an event may hold.")
    }

    init?(argument: String) {
        guard let sign = argument.firstIndex(of: "="), sign != argument.startIndex else { return nil }
        let before = argument.index(before: sign)
        let text = String(argument[argument.index(after: sign)...])
        guard argument[before] == ":" else {
            name = String(argument[..<sign])
            value = .string(text)
            return
        }
        guard before != argument.startIndex, let value = try? PropertyValue(json: text) else { return nil }
        name = String(argument[..<before])
        self.value = value
    }
}
